// Command flanneld runs flannel on one Kubernetes node: the kube subnet manager with the vxlan or host-gw
// backend. Other backends are left out: they need cgo or clouds.
//
// It also writes the node's CNI configuration, once the backend runs and its MTU is known: the bridge and
// portmap plugins with the node's own pod subnet. Until then no pod network is offered, and /healthz says so.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/flannel-io/flannel/pkg/backend"
	_ "github.com/flannel-io/flannel/pkg/backend/hostgw"
	_ "github.com/flannel-io/flannel/pkg/backend/vxlan"
	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/ipmatch"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/subnet/kube"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
)

const (
	version          = "v0.28.4"
	annotationPrefix = "flannel.alpha.coreos.com"
	// How often the masquerade and forward rules are compared with what they should be.
	resyncSeconds = 5
)

type options struct {
	kubeconfig, apiURL, netConf, subnetFile, iface, publicIP, cniConf string
	ipMasq                                                            bool
	healthzPort                                                       int
}

func parseOptions() options {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig file; empty: the pod's service account")
	flag.StringVar(&o.apiURL, "kube-api-url", "", "API server; empty: from the kubeconfig or the pod's environment")
	flag.StringVar(&o.netConf, "net-conf", "/etc/kube-flannel/net-conf.json", "network configuration")
	flag.StringVar(&o.subnetFile, "subnet-file", "/run/flannel/subnet.env", "where to write the node's subnet")
	flag.StringVar(&o.iface, "iface", "", "interface between nodes, by name or address; empty: that of the default route")
	flag.StringVar(&o.publicIP, "public-ip", "", "address that other nodes reach this one at; empty: the interface's")
	flag.StringVar(&o.cniConf, "cni-conf", "", "CNI configuration to write; empty: none")
	flag.BoolVar(&o.ipMasq, "ip-masq", true, "masquerade traffic that leaves the pod network")
	flag.IntVar(&o.healthzPort, "healthz-port", 0, "port of /livez and /healthz on loopback; 0: none")
	showVersion := flag.Bool("version", false, "print the version and exit")
	flag.Parse()
	if *showVersion {
		fmt.Println(version)
		os.Exit(0)
	}
	return o
}

func main() {
	o := parseOptions()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	var offered atomic.Bool
	if o.healthzPort > 0 {
		if err := serveHealth(o.healthzPort, &offered); err != nil {
			return err
		}
	}
	manager, err := kube.NewSubnetManager(ctx, o.apiURL, o.kubeconfig, annotationPrefix, o.netConf, true)
	if err != nil {
		return fmt.Errorf("cannot reach the Kubernetes API: %w", err)
	}
	config, err := manager.GetNetworkConfig(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", o.netConf, err)
	}
	iface, err := externalInterface(ctx, o, manager, config)
	if err != nil {
		return err
	}

	var tasks sync.WaitGroup
	chosen, err := backend.NewManager(ctx, manager, iface).GetBackend(config.BackendType)
	if err != nil {
		return fmt.Errorf("backend %q is not one of vxlan, host-gw: %w", config.BackendType, err)
	}
	network, err := chosen.RegisterNetwork(ctx, &tasks, config)
	if err != nil {
		return fmt.Errorf("cannot take the node's subnet (does kube-controller-manager allocate node CIDRs?): %w", err)
	}
	if err := setRules(ctx, o, config, network); err != nil {
		return err
	}
	lease := network.Lease()
	if err := manager.HandleSubnetFile(o.subnetFile, config, o.ipMasq, lease.Subnet, lease.IPv6Subnet, network.MTU()); err != nil {
		return fmt.Errorf("cannot write %s: %w", o.subnetFile, err)
	}
	tasks.Add(1)
	go func() {
		defer tasks.Done()
		network.Run(ctx)
	}()
	if o.cniConf != "" {
		if err := writeCNI(o.cniConf, lease.Subnet.String(), network.MTU()); err != nil {
			return err
		}
	}
	offered.Store(true)
	fmt.Printf("pod subnet %s, mtu %d, backend %s\n", lease.Subnet, network.MTU(), config.BackendType)
	err = manager.CompleteLease(ctx, lease, &tasks)
	tasks.Wait()
	return err
}

// externalInterface finds the interface to the other nodes. An address that the node object carries from
// an earlier run wins, so that the peers' routes stay right.
func externalInterface(ctx context.Context, o options, m subnet.Manager, c *subnet.Config) (*backend.ExternalInterface, error) {
	family, err := ipmatch.GetIPFamily(c.EnableIPv4, c.EnableIPv6)
	if err != nil {
		return nil, err
	}
	public := ipmatch.PublicIPOpts{PublicIP: o.publicIP}
	if stored, _ := m.GetStoredPublicIP(ctx); stored != "" {
		public.PublicIP = stored
	}
	name := o.iface
	if name == "" {
		name = public.PublicIP
	}
	iface, err := ipmatch.LookupExtIface(name, "", "", family, public)
	if err != nil {
		return nil, fmt.Errorf("no interface matches %q: %w", name, err)
	}
	return iface, nil
}

func setRules(ctx context.Context, o options, c *subnet.Config, network backend.Network) error {
	wanted, unused := rulesManager(c.EnableNFTables), rulesManager(!c.EnableNFTables)
	if err := unused.CleanUp(ctx); err != nil {
		return fmt.Errorf("cannot clean the rules of the other rules manager: %w", err)
	}
	if err := wanted.Init(ctx); err != nil {
		return fmt.Errorf("cannot set up rules: %w", err)
	}
	if o.ipMasq {
		previous := readSubnetFile(o.subnetFile)
		noV6 := ip.IP6Net{IP: (*ip.IP6)(big.NewInt(0))}
		if err := wanted.SetupAndEnsureMasqRules(ctx, c.Network, previous["FLANNEL_SUBNET"], previous["FLANNEL_NETWORK"],
			c.IPv6Network, noV6, noV6, network.Lease(), resyncSeconds, false); err != nil {
			return fmt.Errorf("cannot masquerade: %w", err)
		}
	}
	wanted.SetupAndEnsureForwardRules(ctx, c.Network, c.IPv6Network, resyncSeconds)
	return nil
}

func rulesManager(useNFTables bool) trafficmngr.TrafficManager {
	if useNFTables {
		return &nftables.NFTablesManager{}
	}
	return &iptables.IPTablesManager{}
}

// readSubnetFile gives the networks of an earlier run, so that its rules are replaced when they changed.
// Anything unreadable counts as absent.
func readSubnetFile(path string) map[string]ip.IP4Net {
	found := map[string]ip.IP4Net{}
	file, err := os.Open(path)
	if err != nil {
		return found
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		first, _, _ := strings.Cut(value, ",")
		if _, network, err := net.ParseCIDR(first); err == nil && network.IP.To4() != nil {
			found[key] = ip.FromIPNet(network)
		}
	}
	return found
}

// writeCNI replaces the configuration in one rename: the container runtime reads it at any moment.
func writeCNI(path, podSubnet string, mtu int) error {
	conf := map[string]any{
		"cniVersion": "1.0.0",
		"name":       "cbr0",
		"plugins": []any{
			map[string]any{
				"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true, "ipMasq": false, "mtu": mtu,
				"ipam": map[string]any{
					"type":   "host-local",
					"ranges": []any{[]any{map[string]any{"subnet": podSubnet}}},
				},
			},
			map[string]any{"type": "portmap", "capabilities": map[string]any{"portMappings": true}},
		},
	}
	content, err := json.MarshalIndent(conf, "", "  ")
	if err != nil {
		return err
	}
	// A name that the container runtime passes over until the rename.
	temporary := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".new")
	if err := os.WriteFile(temporary, append(content, '\n'), 0o644); err != nil {
		return fmt.Errorf("cannot write the CNI configuration: %w", err)
	}
	return os.Rename(temporary, path)
}

// serveHealth answers /livez as long as the process runs and /healthz once the pod network is offered.
func serveHealth(port int, offered *atomic.Bool) error {
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if !offered.Load() {
			http.Error(w, "the pod network is not up yet", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(listener) }()
	return nil
}
