package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestHealthzNamesWhatIsMissingUntilNothingIs(t *testing.T) {
	health := newHealth()
	health.hold(startup, "waiting for the API server")
	health.hold(ruleset, "setting rules")
	expect(t, health, "/healthz", http.StatusServiceUnavailable,
		"rules: setting rules\nstart: waiting for the API server\n")
	expect(t, health, "/livez", http.StatusOK, "ok\n")

	health.release(startup)
	expect(t, health, "/healthz", http.StatusServiceUnavailable, "rules: setting rules\n")

	health.release(ruleset)
	expect(t, health, "/healthz", http.StatusOK, "ok\n")
}

func expect(t *testing.T, health *health, path string, status int, body string) {
	t.Helper()
	answer := httptest.NewRecorder()
	health.handler().ServeHTTP(answer, httptest.NewRequest(http.MethodGet, path, nil))
	if answer.Code != status || answer.Body.String() != body {
		t.Errorf("%s: got %d %q, want %d %q", path, answer.Code, answer.Body, status, body)
	}
}
