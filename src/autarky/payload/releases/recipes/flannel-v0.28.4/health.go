package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// The parts that may hold readiness back.
const (
	startup   = "start"
	ruleset   = "rules"
	nodeLease = "lease"
)

// health knows what keeps the node from offering its pod network, one reason per part. Every change is logged.
type health struct {
	mutex   sync.Mutex
	reasons map[string]string
}

func newHealth() *health {
	return &health{reasons: map[string]string{}}
}

func (h *health) hold(part, reason string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.reasons[part] != reason {
		klog.InfofDepth(1, "%s: %s", part, reason)
	}
	h.reasons[part] = reason
}

func (h *health) release(part string) {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if _, held := h.reasons[part]; held {
		klog.InfofDepth(1, "%s: done", part)
	}
	delete(h.reasons, part)
}

// unready lists what is missing, empty when nothing is.
func (h *health) unready() string {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	lines := make([]string, 0, len(h.reasons))
	for part, reason := range h.reasons {
		lines = append(lines, part+": "+reason)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// serve answers on loopback: /livez as long as the process runs, /healthz once pods can be connected.
//
// Waiting for the API server is no reason to be killed, so /livez knows nothing of it.
func (h *health) serve(ctx context.Context, tasks *errgroup.Group, port int) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return fmt.Errorf("cannot serve health: %w", err)
	}
	server := &http.Server{Handler: h.handler(), ReadHeaderTimeout: 5 * time.Second}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	tasks.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("cannot serve health: %w", err)
		}
		return nil
	})
	return nil
}

func (h *health) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if missing := h.unready(); missing != "" {
			http.Error(w, missing, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	return mux
}
