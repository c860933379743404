package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/klog/v2"
)

// writeCNIConf puts the node's CNI configuration in place: complete or not at all, as the runtime reads it at any
// moment. A file that says the same already is left alone, and the runtime does not load it again.
func writeCNIConf(path, podSubnet string, mtu int) error {
	content, err := cniConf(podSubnet, mtu)
	if err != nil {
		return err
	}
	if present, err := os.ReadFile(path); err == nil && bytes.Equal(present, content) {
		return nil
	}
	if err := replaceFile(path, content); err != nil {
		return fmt.Errorf("cannot write the CNI configuration: %w", err)
	}
	klog.Infof("Wrote the CNI configuration %s", path)
	return nil
}

// cniConf is a configuration list of the standard plugins: a bridge per node, addresses from the node's own subnet.
func cniConf(podSubnet string, mtu int) ([]byte, error) {
	bridge := map[string]any{
		"type":   "bridge",
		"bridge": "cni0",
		// Adds the pod's default route. With another one in ipam.routes every pod would fail: "file exists".
		"isDefaultGateway": true,
		// A node may come back with another subnet. The bridge then follows, where it would refuse every new pod.
		"forceAddress": true,
		// A pod may reach itself by way of its own Service.
		"hairpinMode": true,
		// The rules of this process masquerade, for the whole pod network and not for this node's part of it.
		"ipMasq": false,
		"mtu":    mtu,
		"ipam": map[string]any{
			"type":   "host-local",
			"ranges": [][]map[string]string{{{"subnet": podSubnet}}},
		},
	}
	portmap := map[string]any{"type": "portmap", "capabilities": map[string]bool{"portMappings": true}}
	content, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "cbr0", // as in upstream's manifest: a network keeps its name when this process takes it over
		"plugins":    []any{bridge, portmap},
	}, "", "  ")
	return append(content, '\n'), err
}

// replaceFile writes content so that a reader, or a power cut, finds the old file or the new one.
func replaceFile(path string, content []byte) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	// One fixed name, so that a kill leaves at most one; runtimes read no file that ends like this.
	temporary := filepath.Join(directory, "."+filepath.Base(path)+".new")
	if err := writeAndSync(temporary, content); err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDirectory(directory)
}

func writeAndSync(path string, content []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err == nil {
		err = file.Sync()
	}
	if closed := file.Close(); err == nil {
		err = closed
	}
	return err
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = directory.Close() }()
	return directory.Sync()
}
