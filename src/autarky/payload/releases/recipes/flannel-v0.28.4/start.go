package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"

	"github.com/flannel-io/flannel/pkg/backend"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	// A backend registers itself under its type when it is imported.
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
)

// bridgeSysctl exists where br_netfilter is loaded.
const bridgeSysctl = "/proc/sys/net/bridge/bridge-nf-call-iptables"

// start brings the node's pod network up, step by step, and leaves behind the tasks that keep it.
func start(ctx context.Context, tasks *errgroup.Group, opts options, health *health) error {
	config, err := readConfig(opts.netConf)
	if err != nil {
		return err
	}
	client, err := newClient(opts)
	if err != nil {
		return err
	}
	if err := awaitPodSubnet(ctx, client, opts.nodeName, health); err != nil {
		return err
	}

	health.hold(startup, "listing the nodes")
	manager, err := kube.NewSubnetManager(ctx, opts.apiURL, opts.kubeconfig, annotationPrefix, opts.netConf, true)
	if err != nil {
		return fmt.Errorf("cannot list the nodes: %w", err)
	}
	health.hold(startup, "setting up backend "+config.BackendType)
	network, err := register(ctx, opts, manager, config)
	if err != nil {
		return err
	}
	lease := network.Lease()
	rules, err := newRules(opts, config, lease)
	if err != nil {
		return err
	}
	if err := rules.setUp(ctx); err != nil {
		return err
	}
	if err := manager.HandleSubnetFile(
		opts.subnetFile, config, opts.masquerade, lease.Subnet, lease.IPv6Subnet, network.MTU(),
	); err != nil {
		return fmt.Errorf("cannot write %s: %w", opts.subnetFile, err)
	}
	tasks.Go(func() error { return runBackend(ctx, network) })
	tasks.Go(func() error { return rules.keep(ctx, health) })

	claim := &claim{node: opts.nodeName, client: client, manager: manager, lease: lease}
	if err := claim.announce(ctx); err != nil {
		return err
	}
	tasks.Go(func() error { return claim.keep(ctx, health) })
	if opts.cniConf != "" {
		if err := writeCNIConf(opts.cniConf, lease.Subnet.String(), network.MTU()); err != nil {
			return err
		}
	}
	klog.Infof("Pods of this node get addresses of %s (MTU %d)", lease.Subnet, network.MTU())
	health.release(startup)
	return nil
}

// readConfig reads the network configuration and refuses what this command cannot do.
//
// The subnet manager reads the same file again and would fail as well, but only after the API server has answered,
// and for some of it with no word of the reason.
func readConfig(path string) (*subnet.Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the network configuration: %w", err)
	}
	config, err := subnet.ParseConfig(string(content))
	if err != nil {
		return nil, fmt.Errorf("cannot use the network configuration %s: %w", path, err)
	}
	if err := checkConfig(config); err != nil {
		return nil, fmt.Errorf("cannot use the network configuration %s: %w", path, err)
	}
	return config, checkHost(config)
}

func checkConfig(config *subnet.Config) error {
	switch {
	case config.EnableIPv6 || !config.EnableIPv4:
		return errors.New("IPv6 is not built yet: leave EnableIPv6 and EnableIPv4 out")
	case config.Network.Empty():
		return errors.New("Network is missing: the CIDR that holds every node's pod subnet")
	case config.BackendType != "vxlan" && config.BackendType != "host-gw":
		return fmt.Errorf("backend %q is not linked: Backend.Type is vxlan or host-gw", config.BackendType)
	}
	return nil
}

// checkHost finds what upstream's iptables manager would only log: it gives up and the process goes on without rules.
func checkHost(config *subnet.Config) error {
	_, err := os.Stat(bridgeSysctl)
	if config.EnableNFTables {
		if err != nil {
			klog.Warning("br_netfilter is not loaded: pods will not reach Services whose endpoint is on their own node")
		}
		return nil
	}
	if err != nil {
		return errors.New("br_netfilter is not loaded, and iptables mode needs it: run `modprobe br_netfilter`")
	}
	for _, program := range []string{"iptables", "iptables-restore"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("iptables mode (EnableNFTables is not set): %w", err)
		}
	}
	return nil
}

func newClient(opts options) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags(opts.apiURL, opts.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("cannot find the way to the API server: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("cannot find the way to the API server: %w", err)
	}
	return client, nil
}

// register has the backend create its device and claim the node's pod subnet.
func register(
	ctx context.Context, opts options, manager subnet.Manager, config *subnet.Config,
) (backend.Network, error) {
	external, err := externalInterface(ctx, opts, manager)
	if err != nil {
		return nil, err
	}
	kind, err := backend.NewManager(ctx, manager, external).GetBackend(config.BackendType)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", config.BackendType, err)
	}
	var unused sync.WaitGroup // neither backend leaves anything running here
	network, err := kind.RegisterNetwork(ctx, &unused, config)
	if err != nil {
		return nil, fmt.Errorf("backend %s: %w", config.BackendType, err)
	}
	return network, nil
}

// externalInterface is the interface by which the other nodes are reached. An address in the annotation
// node-public-ip goes before --public-ip, as in upstream's command: it is how a single node is told apart.
func externalInterface(ctx context.Context, opts options, manager subnet.Manager) (*backend.ExternalInterface, error) {
	publicIP := opts.publicIP
	if annotated, _ := manager.GetStoredPublicIP(ctx); annotated != "" {
		publicIP = annotated
	}
	nameOrAddress := opts.iface
	if nameOrAddress == "" {
		nameOrAddress = publicIP
	}
	family, err := ipmatch.GetIPFamily(true, false)
	if err != nil {
		return nil, err
	}
	external, err := ipmatch.LookupExtIface(nameOrAddress, "", "", family, ipmatch.PublicIPOpts{PublicIP: publicIP})
	if err != nil {
		return nil, fmt.Errorf("cannot find the interface to the other nodes (--iface=%q): %w", opts.iface, err)
	}
	return external, nil
}

// runBackend follows the other nodes' claims until ctx ends.
//
// When somebody removes the vxlan device, this version of the backend panics without IPv6 (it looks for an IPv6
// address all the same). The restart makes the device anew, with every route, in little more than a second.
func runBackend(ctx context.Context, network backend.Network) error {
	network.Run(ctx)
	if ctx.Err() == nil {
		return errors.New("the backend stopped by itself")
	}
	return nil
}
