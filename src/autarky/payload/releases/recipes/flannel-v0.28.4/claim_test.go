package main

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestThePodSubnetIsTheFirstIPv4One(t *testing.T) {
	for _, given := range []struct {
		one  string
		all  []string
		want string
	}{
		{"", nil, ""},
		{"10.244.1.0/24", nil, "10.244.1.0/24"},
		{"fd00::/64", []string{"fd00::/64", "10.244.2.0/24"}, "10.244.2.0/24"},
		{"fd00::/64", []string{"fd00::/64"}, ""},
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{PodCIDR: given.one, PodCIDRs: given.all}}
		if got := podSubnet(node); got != given.want {
			t.Errorf("%q %q: got %q, want %q", given.one, given.all, got, given.want)
		}
	}
}

func TestAClaimIsHeldOnlyWithEveryAnnotationOfOurs(t *testing.T) {
	attrs := &lease.LeaseAttrs{
		BackendType: "vxlan",
		BackendData: json.RawMessage(`{"VNI":1,"VtepMAC":"12:c6:65:89:b4:e3"}`),
		PublicIP:    ip.MustParseIP4("192.0.2.7"),
	}
	claimed := func() *corev1.Node {
		node := &corev1.Node{}
		node.Annotations = map[string]string{
			managedAnnotation: "true",
			typeAnnotation:    "vxlan",
			dataAnnotation:    string(attrs.BackendData),
			addressAnnotation: "192.0.2.7",
		}
		return node
	}
	if !holdsClaim(claimed(), attrs) {
		t.Error("a complete claim does not count")
	}
	for annotation := range claimed().Annotations {
		bare := claimed()
		delete(bare.Annotations, annotation)
		if holdsClaim(bare, attrs) {
			t.Errorf("a claim without %s counts", annotation)
		}
	}
	if holdsClaim(&corev1.Node{}, attrs) {
		t.Error("a node registered anew counts")
	}
}

func TestAnOverwrittenPublicAddressCountsAsOurs(t *testing.T) {
	attrs := &lease.LeaseAttrs{BackendType: "host-gw", PublicIP: ip.MustParseIP4("192.0.2.7")}
	node := &corev1.Node{}
	node.Annotations = map[string]string{
		managedAnnotation:   "true",
		typeAnnotation:      "host-gw",
		dataAnnotation:      "null",
		addressAnnotation:   "198.51.100.1",
		overwriteAnnotation: "198.51.100.1",
	}
	if !holdsClaim(node, attrs) {
		t.Error("upstream announces the address of public-ip-overwrite")
	}
}

func TestARenewalPatchesTheStatusAndAnnouncesTheNetworkAgain(t *testing.T) {
	var asked, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		content, _ := io.ReadAll(request.Body)
		asked, body = request.Method+" "+request.URL.Path, string(content)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}`)
	}))
	defer server.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	manager := &announcements{}
	attrs := lease.LeaseAttrs{BackendType: "host-gw", PublicIP: ip.MustParseIP4("192.0.2.7")}
	claim := &claim{node: "n1", client: client, manager: manager, lease: &lease.Lease{Attrs: attrs}}

	if err := claim.renew(t.Context(), &corev1.Node{}); err != nil {
		t.Fatal(err)
	}

	if asked != "PATCH /api/v1/nodes/n1/status" {
		t.Errorf("asked for %s", asked)
	}
	want := `{"metadata":{"annotations":{"flannel.alpha.coreos.com/backend-data":"null",` +
		`"flannel.alpha.coreos.com/backend-type":"host-gw","flannel.alpha.coreos.com/kube-subnet-manager":"true",` +
		`"flannel.alpha.coreos.com/public-ip":"192.0.2.7"}}}`
	if body != want {
		t.Errorf("got %s\nwant %s", body, want)
	}
	if manager.count != 1 {
		t.Errorf("announced %d times", manager.count)
	}
}

// announcements counts how often the network was announced; no other method may be called.
type announcements struct {
	subnet.Manager
	count int
}

func (a *announcements) CompleteLease(context.Context, *lease.Lease, *sync.WaitGroup) error {
	a.count++
	return nil
}
