// Command flanneld gives one Kubernetes node its part of the pod network, with flannel's own packages: the subnet
// that the node was allocated, the routes to the other nodes' subnets (backend vxlan or host-gw), the rules for
// traffic that enters or leaves the pod network, and the CNI configuration by which pods get their addresses.
//
// It differs from upstream's command in what it links (nothing that needs cgo, no clouds, no etcd) and in what it
// adds: it writes the CNI configuration itself, for the standard plugins bridge, host-local and portmap; it waits
// for the API server and for the pod subnet instead of failing; it keeps nftables rules in place, as upstream does
// for iptables; and it renews its claim when the Node object was deleted and registered anew.
//
// Contract: the environment variable NODE_NAME holds the node's name. The process runs until SIGTERM (exit status 0)
// or until something fails for good (status 1, the reason is the last line on standard error; 2 for wrong usage).
// It needs CAP_NET_ADMIN and CAP_NET_RAW, the node's network namespace, and `nft` or `iptables`, whichever the
// network configuration chooses. It may be killed and started again at any moment.
//
// Danger: the pod network outlives the process. Nothing is taken down at the end, or else an upgrade of this very
// process would cut off every pod.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/klog/v2"
)

// shutdownGrace bounds the wait for the backend at the end: its event loop can miss that its reader has gone.
const shutdownGrace = 5 * time.Second

type options struct {
	nodeName    string
	kubeconfig  string
	apiURL      string
	netConf     string
	subnetFile  string
	iface       string
	publicIP    string
	cniConf     string
	masquerade  bool
	healthzPort int
	version     bool
}

func main() {
	opts, err := parseOptions(os.Args[1:], os.Getenv("NODE_NAME"))
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(2)
	case opts.version:
		fmt.Println("flanneld", flannelVersion())
		return
	}

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	err = run(ctx, opts)
	klog.Flush()
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "flanneld:", err)
		os.Exit(1)
	}
}

func parseOptions(args []string, nodeName string) (options, error) {
	opts := options{nodeName: nodeName}
	flags := flag.NewFlagSet("flanneld", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // or else each error would be said twice, once with the whole usage
	flags.StringVar(&opts.kubeconfig, "kubeconfig", "", "kubeconfig `file`; empty: the pod's service account")
	flags.StringVar(&opts.apiURL, "kube-api-url", "", "`URL` of the API server, in place of the kubeconfig's")
	flags.StringVar(&opts.netConf, "net-conf", "/etc/kube-flannel/net-conf.json", "network configuration `file`")
	flags.StringVar(&opts.subnetFile, "subnet-file", "/run/flannel/subnet.env", "`file` to write the subnet and MTU to")
	flags.StringVar(&opts.iface, "iface", "",
		"`interface` to the other nodes, by name or address; empty: the one with the public address or the default route")
	flags.StringVar(&opts.publicIP, "public-ip", "",
		"`address` at which the other nodes reach this one; empty: the interface's")
	flags.BoolVar(&opts.masquerade, "ip-masq", true, "masquerade traffic that leaves the pod network")
	flags.IntVar(&opts.healthzPort, "healthz-port", 0, "loopback `port` for /healthz (ready) and /livez; 0: none")
	flags.StringVar(&opts.cniConf, "cni-conf", "",
		"CNI configuration `file` to write once pods can be connected; empty: none")
	flags.BoolVar(&opts.version, "version", false, "print the version and exit")
	logging := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logging)
	flags.Var(logging.Lookup("v").Value, "v", "log `level`; 2 tells of each route")

	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println("Usage: NODE_NAME=name flanneld [flags]")
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		return opts, err
	case err != nil:
		return opts, fmt.Errorf("%w (flanneld --help lists the flags)", err)
	case opts.version:
		return opts, nil
	case flags.NArg() > 0:
		return opts, fmt.Errorf("unexpected argument %q: there are only flags", flags.Arg(0))
	case opts.nodeName == "":
		return opts, errors.New("the environment variable NODE_NAME must hold the name of this node")
	}
	return opts, nil
}

// run serves health, brings the network up and keeps it. It returns when ctx ends or at the first failure.
func run(ctx context.Context, opts options) error {
	tasks, ctx := errgroup.WithContext(ctx)
	health := newHealth()
	health.hold(startup, "reading the configuration")
	if opts.healthzPort != 0 {
		if err := health.serve(ctx, tasks, opts.healthzPort); err != nil {
			return err
		}
	}
	tasks.Go(func() error { return start(ctx, tasks, opts, health) })

	ended := make(chan error, 1)
	go func() { ended <- tasks.Wait() }()
	<-ctx.Done()
	select {
	case err := <-ended:
		return err
	case <-time.After(shutdownGrace):
		return context.Cause(ctx)
	}
}

// flannelVersion is that of the linked module, so that go.mod alone says it.
func flannelVersion() string {
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, module := range build.Deps {
			if module.Path == "github.com/flannel-io/flannel" {
				return module.Version
			}
		}
	}
	return "unknown"
}
