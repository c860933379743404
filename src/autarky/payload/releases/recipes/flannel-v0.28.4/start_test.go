package main

import (
	"strings"
	"testing"

	"github.com/flannel-io/flannel/pkg/subnet"
)

func TestANetworkConfigurationOfAnotherKindIsRefusedByName(t *testing.T) {
	for content, reason := range map[string]string{
		`{"Network": "10.244.0.0/16"}`:                                                  `backend "udp"`,
		`{"Network": "10.244.0.0/16", "Backend": {"Type": "wireguard"}}`:                `backend "wireguard"`,
		`{"Network": "10.244.0.0/16", "EnableIPv6": true, "Backend": {"Type":"vxlan"}}`: "IPv6",
		`{"Backend": {"Type": "vxlan"}}`:                                                "Network is missing",
	} {
		if err := check(t, content); err == nil || !strings.Contains(err.Error(), reason) {
			t.Errorf("%s: got %v, want %q", content, err, reason)
		}
	}
}

func TestBothLinkedBackendsAreAccepted(t *testing.T) {
	for _, kind := range []string{"vxlan", "host-gw"} {
		if err := check(t, `{"Network": "10.244.0.0/16", "Backend": {"Type": "`+kind+`"}}`); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

func check(t *testing.T, content string) error {
	t.Helper()
	config, err := subnet.ParseConfig(content)
	if err != nil {
		t.Fatal(err)
	}
	return checkConfig(config)
}
