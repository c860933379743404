package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"strings"
	"time"

	"github.com/flannel-io/flannel/pkg/ip"
	"github.com/flannel-io/flannel/pkg/lease"
	"github.com/flannel-io/flannel/pkg/subnet"
	"github.com/flannel-io/flannel/pkg/trafficmngr"
	"github.com/flannel-io/flannel/pkg/trafficmngr/iptables"
	"github.com/flannel-io/flannel/pkg/trafficmngr/nftables"
	"k8s.io/klog/v2"
	"sigs.k8s.io/knftables"
)

const (
	// How often upstream's iptables manager looks after its rules.
	iptablesResyncSeconds = 5
	// How often this command looks after the nftables rules; one run of nft, some milliseconds.
	nftCheckEvery = 10 * time.Second
	// The table and chains of upstream's nftables manager, which does not export them.
	nftTable           = "flannel-ipv4"
	nftForwardChain    = "forward"
	nftMasqueradeChain = "postrtg"
)

// rules are the packet filter rules of the pod network: forward what enters or leaves it, masquerade what leaves.
type rules struct {
	wanted, other trafficmngr.TrafficManager
	nft           knftables.Interface // nil in iptables mode
	masquerade    bool
	config        *subnet.Config
	lease         *lease.Lease
	previous      map[string]ip.IP4Net
}

func newRules(opts options, config *subnet.Config, lease *lease.Lease) (*rules, error) {
	rules := &rules{
		wanted:     &iptables.IPTablesManager{},
		other:      &nftables.NFTablesManager{},
		masquerade: opts.masquerade,
		config:     config,
		lease:      lease,
		previous:   readSubnetFile(opts.subnetFile),
	}
	if !config.EnableNFTables {
		return rules, nil
	}
	rules.wanted, rules.other = rules.other, rules.wanted
	var err error
	if rules.nft, err = knftables.New(knftables.IPv4Family, nftTable); err != nil {
		return nil, fmt.Errorf("cannot use nftables: %w", err)
	}
	return rules, nil
}

// setUp replaces whatever an earlier run left behind with the rules of this one.
func (r *rules) setUp(ctx context.Context) error {
	if err := r.other.CleanUp(ctx); err != nil {
		// It fails only where its program is missing, and then it cannot have left rules here.
		klog.Infof("No rules of the other kind to remove: %v", err)
	}
	if !r.masquerade {
		// Nothing below would remove the rules of an earlier run that did masquerade.
		if err := r.wanted.CleanUp(ctx); err != nil {
			return fmt.Errorf("cannot remove earlier rules: %w", err)
		}
	}
	if err := r.apply(ctx); err != nil {
		return err
	}
	if r.nft == nil {
		return nil
	}
	complete, err := r.complete(ctx)
	if err == nil && !complete {
		err = errors.New("rules are missing right after they were set") // upstream only logs why
	}
	if err != nil {
		return fmt.Errorf("cannot set up nftables: %w", err)
	}
	return nil
}

// apply sets the rules; with nftables each chain in one transaction, so that traffic never meets half of it.
func (r *rules) apply(ctx context.Context) error {
	if err := r.wanted.Init(ctx); err != nil {
		return fmt.Errorf("cannot set up rules: %w", err)
	}
	if r.masquerade {
		noIPv6 := ip.IP6Net{IP: (*ip.IP6)(big.NewInt(0))}
		if err := r.wanted.SetupAndEnsureMasqRules(
			ctx,
			r.config.Network, r.previous["FLANNEL_SUBNET"], r.previous["FLANNEL_NETWORK"],
			r.config.IPv6Network, noIPv6, noIPv6,
			r.lease, iptablesResyncSeconds, false,
		); err != nil {
			return fmt.Errorf("cannot set up masquerading: %w", err)
		}
	}
	r.wanted.SetupAndEnsureForwardRules(ctx, r.config.Network, r.config.IPv6Network, iptablesResyncSeconds)
	return nil
}

// keep puts lost nftables rules back until ctx ends. Upstream does so for iptables only, although `nft flush ruleset`
// is all it takes to lose them, and restarting Debian's nftables service does just that.
func (r *rules) keep(ctx context.Context, health *health) error {
	if r.nft == nil {
		return nil
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(nftCheckEvery):
		}
		complete, err := r.complete(ctx)
		if err == nil && !complete {
			health.hold(ruleset, "nftables rules are missing, setting them again")
			if err = r.apply(ctx); err == nil {
				complete, err = r.complete(ctx)
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // unknown is not missing: try again
			health.hold(ruleset, fmt.Sprintf("cannot look after nftables: %v", err))
		case complete:
			health.release(ruleset)
		}
	}
}

// complete says whether every chain exists and has rules.
func (r *rules) complete(ctx context.Context) (bool, error) {
	found, err := r.nft.ListRules(ctx, "")
	if err != nil && !knftables.IsNotFound(err) {
		return false, err
	}
	rulesIn := map[string]int{}
	for _, rule := range found {
		rulesIn[rule.Chain]++
	}
	return rulesIn[nftForwardChain] > 0 && (rulesIn[nftMasqueradeChain] > 0 || !r.masquerade), nil
}

// readSubnetFile gives the networks of an earlier run by their keys: upstream's iptables manager removes the rules of
// those one by one. What is absent or damaged is passed over, as it empties its own chains in any case.
func readSubnetFile(path string) map[string]ip.IP4Net {
	networks := map[string]ip.IP4Net{}
	file, err := os.Open(path)
	if err != nil {
		return networks
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), "=")
		if _, network, err := net.ParseCIDR(value); err == nil && network.IP.To4() != nil {
			networks[key] = ip.FromIPNet(network)
		}
	}
	return networks
}
