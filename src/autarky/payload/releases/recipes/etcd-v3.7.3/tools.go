//go:build tools

// Package tools names the main packages this recipe builds, so that go.mod and go.sum pin everything they need.
package tools

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "go.etcd.io/etcd/etcdctl/v3"
	_ "go.etcd.io/etcd/etcdutl/v3"
)
