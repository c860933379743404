package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestThePreviousNetworksAreReadFromTheSubnetFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subnet.env")
	content := "FLANNEL_NETWORK=10.244.0.0/16\nFLANNEL_SUBNET=10.244.3.1/24\nFLANNEL_MTU=1450\nFLANNEL_IPMASQ=true\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	networks := readSubnetFile(path)
	if len(networks) != 2 {
		t.Errorf("got %v", networks)
	}
	if got := networks["FLANNEL_NETWORK"].String(); got != "10.244.0.0/16" {
		t.Errorf("network: got %s", got)
	}
	if got := networks["FLANNEL_SUBNET"].String(); got != "10.244.3.0/24" {
		t.Errorf("subnet: got %s", got)
	}
}

func TestAnAbsentSubnetFileHoldsNoNetworks(t *testing.T) {
	if networks := readSubnetFile(filepath.Join(t.TempDir(), "absent")); len(networks) != 0 {
		t.Errorf("got %v", networks)
	}
}
