package main

import (
	"strings"
	"testing"
)

func TestOptionsHaveTheDocumentedDefaults(t *testing.T) {
	opts, err := parseOptions(nil, "n1")
	want := options{
		nodeName:   "n1",
		netConf:    "/etc/kube-flannel/net-conf.json",
		subnetFile: "/run/flannel/subnet.env",
		masquerade: true,
	}
	if err != nil || opts != want {
		t.Fatalf("got %+v, %v; want %+v", opts, err, want)
	}
}

func TestWrongUsageIsRefusedWithAReason(t *testing.T) {
	for _, wrong := range []struct {
		node   string
		args   []string
		reason string
	}{
		{"n1", []string{"--ip-masq", "stray"}, `unexpected argument "stray"`},
		{"n1", []string{"--cni-config=/x"}, "flag provided but not defined: -cni-config (flanneld --help"},
		{"n1", []string{"--healthz-port=no"}, `invalid value "no"`},
		{"", nil, "NODE_NAME"},
	} {
		if _, err := parseOptions(wrong.args, wrong.node); err == nil || !strings.Contains(err.Error(), wrong.reason) {
			t.Errorf("%q: got %v, want %q", wrong.args, err, wrong.reason)
		}
	}
}

func TestTheVersionNeedsNoNodeName(t *testing.T) {
	if opts, err := parseOptions([]string{"--version"}, ""); err != nil || !opts.version {
		t.Fatalf("got %+v, %v", opts, err)
	}
}
