//go:build tools

// Package tools names the main packages this recipe builds, so that go.mod and go.sum pin everything they need.
package tools

import (
	_ "sigs.k8s.io/kwok/cmd/kwok"
)
