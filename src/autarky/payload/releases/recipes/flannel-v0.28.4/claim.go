package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

// The annotations by which the nodes' flannels find each other; upstream's names, so that both kinds may be mixed.
const (
	annotationPrefix    = "flannel.alpha.coreos.com"
	managedAnnotation   = annotationPrefix + "/kube-subnet-manager"
	typeAnnotation      = annotationPrefix + "/backend-type"
	dataAnnotation      = annotationPrefix + "/backend-data"
	addressAnnotation   = annotationPrefix + "/public-ip"
	overwriteAnnotation = annotationPrefix + "/public-ip-overwrite"
)

const (
	// A new node has its pod subnet within a second or two of its registration.
	askEvery = time.Second
	// One hanging API server must not hold up the next attempt, which may meet another.
	askTimeout = 5 * time.Second
	// Between attempts to renew a claim.
	renewEvery = 5 * time.Second
)

// awaitPodSubnet waits until the Node object exists and was allocated an IPv4 pod subnet.
//
// Race: at the start of a cluster or of a node, this process, the API server, the kubelet's registration and the
// allocation come in any order. Upstream fails at each of them, and the kubelet's back-off costs 10 s and more; its
// informers are no better to wait with, as their own back-off goes to 30 s.
func awaitPodSubnet(ctx context.Context, client kubernetes.Interface, name string, health *health) error {
	for {
		node, err := askNode(ctx, client, name)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case apierrors.IsNotFound(err):
			health.hold(startup, fmt.Sprintf("waiting for the kubelet to register node %s", name))
		case err != nil:
			health.hold(startup, fmt.Sprintf("waiting for the API server: %v", err))
		case isBare(node):
			health.hold(startup, fmt.Sprintf("waiting for the kubelet to annotate node %s", name))
		case podSubnet(node) == "":
			health.hold(startup, fmt.Sprintf("waiting for kube-controller-manager to allocate node %s a pod subnet", name))
		default:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(askEvery):
		}
	}
}

// isBare tells of a Node object that the kubelet has not seen yet, as it annotates every node. Upstream's subnet
// manager panics on one without annotations: it writes into the nil map.
func isBare(node *corev1.Node) bool {
	return node.Annotations == nil
}

func askNode(ctx context.Context, client kubernetes.Interface, name string) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// podSubnet is the first IPv4 CIDR that the node was allocated, empty when there is none.
func podSubnet(node *corev1.Node) string {
	for _, cidr := range append([]string{node.Spec.PodCIDR}, node.Spec.PodCIDRs...) {
		if _, network, err := net.ParseCIDR(cidr); err == nil && network.IP.To4() != nil {
			return network.String()
		}
	}
	return ""
}

// claim is this node's entry in the pod network: annotations of its Node object, which the other nodes follow.
type claim struct {
	node    string
	client  kubernetes.Interface
	manager subnet.Manager
	lease   *lease.Lease
}

// announce sets the condition NetworkUnavailable to False: until then the scheduler may keep pods away.
func (c *claim) announce(ctx context.Context) error {
	var unused sync.WaitGroup // the kube subnet manager starts nothing here
	if err := c.manager.CompleteLease(ctx, c.lease, &unused); err != nil {
		return fmt.Errorf("cannot set the condition NetworkUnavailable of node %s: %w", c.node, err)
	}
	return nil
}

// keep renews the claim whenever the Node object lacks it, until ctx ends. It fails when the node was allocated
// another subnet: then everything has to be set up anew, which is what a restart does.
//
// Race: somebody deletes the Node object, the kubelet registers a bare one. The other nodes have dropped their
// routes to this one by then, and nothing else would ever bring them back.
func (c *claim) keep(ctx context.Context, health *health) error {
	changed := make(chan struct{}, 1)
	store := c.watch(ctx, changed)
	var again <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-again:
		}
		missing, err := c.check(ctx, store)
		if err != nil {
			return err
		}
		if missing == "" {
			again = nil
			health.release(nodeLease)
			continue
		}
		again = time.After(renewEvery)
		health.hold(nodeLease, missing)
	}
}

// check looks at the Node object and renews the claim if it is gone. It returns what is still missing.
func (c *claim) check(ctx context.Context, store cache.Store) (missing string, err error) {
	object, exists, err := store.GetByKey(c.node)
	node, isNode := object.(*corev1.Node)
	switch {
	case err != nil:
		return "", err
	case !exists || !isNode:
		return fmt.Sprintf("there is no node %s any more", c.node), nil
	case podSubnet(node) == "":
		return fmt.Sprintf("node %s was made anew, waiting for its pod subnet", c.node), nil
	case podSubnet(node) != c.lease.Subnet.String():
		return "", fmt.Errorf("node %s was allocated the pod subnet %s in place of %s: starting anew; "+
			"pods with old addresses have to be replaced", c.node, podSubnet(node), c.lease.Subnet)
	case holdsClaim(node, &c.lease.Attrs):
		return "", nil
	}
	if err := c.renew(ctx, node); err != nil {
		return err.Error(), nil
	}
	return "renewed, not seen yet", nil
}

// renew writes the annotations again. Not by way of the subnet manager: its cache may still hold the object that was
// deleted, then it writes nothing, or the one that nobody had annotated, then it panics.
func (c *claim) renew(ctx context.Context, node *corev1.Node) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": claimOf(node, &c.lease.Attrs)}})
	if err != nil {
		return err
	}
	nodes := c.client.CoreV1().Nodes()
	// Through the status, for which alone flannel's role has the right to patch.
	if _, err := nodes.Patch(ctx, c.node, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("cannot renew the claim: %w", err)
	}
	return c.announce(ctx)
}

// watch follows the one Node object; every change puts a token into changed. Outages are bridged by its reflector.
func (c *claim) watch(ctx context.Context, changed chan<- struct{}) cache.Store {
	notify := func() {
		select {
		case changed <- struct{}{}:
		default: // one is waiting already, and will see this change, too
		}
	}
	this := fields.OneTermEqualSelector("metadata.name", c.node)
	store, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(c.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, this),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(any, any) { notify() },
			DeleteFunc: func(any) { notify() },
		},
	})
	go controller.Run(ctx.Done())
	return store
}

// claimOf are the annotations that make up the claim.
func claimOf(node *corev1.Node, attrs *lease.LeaseAttrs) map[string]string {
	data := cmp.Or(string(attrs.BackendData), "null") // host-gw has none
	return map[string]string{
		managedAnnotation: "true",
		typeAnnotation:    attrs.BackendType,
		dataAnnotation:    data,
		addressAnnotation: cmp.Or(node.Annotations[overwriteAnnotation], attrs.PublicIP.String()),
	}
}

func holdsClaim(node *corev1.Node, attrs *lease.LeaseAttrs) bool {
	for annotation, value := range claimOf(node, attrs) {
		if node.Annotations[annotation] != value {
			return false
		}
	}
	return true
}
