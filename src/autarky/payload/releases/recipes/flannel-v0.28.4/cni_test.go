package main

import (
	"os"
	"path/filepath"
	"testing"
)

const wantedConf = `{
  "cniVersion": "1.0.0",
  "name": "cbr0",
  "plugins": [
    {
      "bridge": "cni0",
      "forceAddress": true,
      "hairpinMode": true,
      "ipMasq": false,
      "ipam": {
        "ranges": [
          [
            {
              "subnet": "10.244.3.0/24"
            }
          ]
        ],
        "type": "host-local"
      },
      "isDefaultGateway": true,
      "mtu": 1450,
      "type": "bridge"
    },
    {
      "capabilities": {
        "portMappings": true
      },
      "type": "portmap"
    }
  ]
}
`

func TestTheConfigurationHoldsTheNodesSubnetAndMTU(t *testing.T) {
	path := filepath.Join(t.TempDir(), "net.d", "10-flannel.conflist")
	write(t, path)
	if content := read(t, path); content != wantedConf {
		t.Errorf("got %s", content)
	}
}

func TestNothingIsLeftBesideTheConfigurationEvenAfterAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "10-flannel.conflist")
	leftover := filepath.Join(filepath.Dir(path), ".10-flannel.conflist.new")
	if err := os.WriteFile(leftover, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, path)
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v", entries, err)
	}
	if content := read(t, path); content != wantedConf {
		t.Errorf("got %s", content)
	}
}

func TestAConfigurationThatSaysTheSameIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "10-flannel.conflist")
	write(t, path)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path)
	after, err := os.Stat(path)
	if err != nil || !os.SameFile(before, after) {
		t.Errorf("the file was replaced, %v", err)
	}
}

func write(t *testing.T, path string) {
	t.Helper()
	if err := writeCNIConf(path, "10.244.3.0/24", 1450); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
