// Command coredns is CoreDNS with the plugins a Kubernetes cluster's DNS uses, and no others.
//
// The complete CoreDNS links some sixty plugins; tracing, the public clouds' name services and ACME alone make up
// most of its compile time. Those below are what kubeadm's Corefile names, and what people add to one: further
// names (hosts), names mapped to others (rewrite, template), search path resolution in the server (autopath), and
// what helps to look into it (log, debug, metadata).
//
// Contract: flags, exit codes and the Corefile are CoreDNS's own, and so is the order in which plugins handle a
// query: it is that of dnsserver.Directives, whatever the order of these imports. A Corefile that names a plugin
// which is not linked is refused at the start ("missing a plugin?"), and on reload the old one stays in force.
// There is no default Corefile: the one built into CoreDNS uses whoami.
package main

import (
	"github.com/coredns/coredns/coremain"

	// A plugin registers itself under its directive when it is imported.
	_ "github.com/coredns/coredns/plugin/autopath"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/bufsize"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/debug"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metadata"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	coremain.Run()
}
