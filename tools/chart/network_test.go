package chart

import (
	"net/netip"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
)

// peer is who asks or is asked: a pod of the release, a namespace, or an address.
type peer struct {
	labels    map[string]string // of a pod in the release's namespace
	namespace string            // of a pod elsewhere
	address   string
}

func matches(t *testing.T, rule networkingv1.NetworkPolicyPeer, p peer) bool {
	t.Helper()
	switch {
	case rule.IPBlock != nil:
		address, err := netip.ParseAddr(p.address)
		if err != nil || !netip.MustParsePrefix(rule.IPBlock.CIDR).Contains(address) {
			return false
		}
		return !slices.ContainsFunc(rule.IPBlock.Except, func(e string) bool { return netip.MustParsePrefix(e).Contains(address) })
	case rule.NamespaceSelector != nil:
		return p.namespace != "" && selects(t, rule.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": p.namespace})
	default:
		return p.labels != nil && selects(t, rule.PodSelector, p.labels)
	}
}

// allowed is Kubernetes' own reading of a rule: no peers are all peers.
func allowed(t *testing.T, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, p peer, port string) bool {
	t.Helper()
	reached := slices.ContainsFunc(ports, func(one networkingv1.NetworkPolicyPort) bool { return one.Port.String() == port })
	return reached && (len(peers) == 0 || slices.ContainsFunc(peers, func(rule networkingv1.NetworkPolicyPeer) bool { return matches(t, rule, p) }))
}

func mayEnter(t *testing.T, policy *networkingv1.NetworkPolicy, from peer, port string) bool {
	t.Helper()
	return slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return allowed(t, r.From, r.Ports, from, port) })
}

func mayLeave(t *testing.T, policy *networkingv1.NetworkPolicy, to peer, port string) bool {
	t.Helper()
	return slices.ContainsFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return allowed(t, r.To, r.Ports, to, port) })
}

func policyOf(t *testing.T, all manifests, role string) *networkingv1.NetworkPolicy {
	t.Helper()
	for _, policy := range of[*networkingv1.NetworkPolicy](all) {
		if policy.Labels["app.kubernetes.io/component"] == role {
			if !slices.Equal(policy.Spec.PolicyTypes, []networkingv1.PolicyType{"Ingress", "Egress"}) {
				t.Errorf("%s: %v", role, policy.Spec.PolicyTypes)
			}
			return policy
		}
	}
	t.Fatalf("no policy for %s", role)
	return nil
}

func podOf(all manifests, role string) peer {
	for _, w := range workloads(all) {
		if w.role == role {
			return peer{labels: w.pod.Labels}
		}
	}
	return peer{}
}

var (
	stranger = peer{labels: map[string]string{"app.kubernetes.io/name": "other"}}
	monitor  = peer{namespace: "monitoring"}
	visitor  = peer{namespace: "ingress-nginx"}
)

// On premises: the edge host is reached by the control plane and nobody else,
// metrics by the monitoring's namespace and nobody else.
func TestPoliciesLetInWhatIsNeeded(t *testing.T) {
	t.Parallel()
	all := decode(t, with(t, valueSets(t)["sqs-onprem"], "networkPolicy", nil))
	for _, role := range roles(all) {
		policy := policyOf(t, all, role)
		if !mayEnter(t, policy, monitor, "metrics") {
			t.Errorf("%s: no metrics", role)
		}
		for _, from := range []peer{stranger, visitor, podOf(all, "api"), {address: "192.0.2.1"}} {
			if mayEnter(t, policy, from, "metrics") {
				t.Errorf("%s: metrics for %+v", role, from)
			}
		}
		if role == "api" || role == "gateway" {
			if !mayEnter(t, policy, visitor, "http") {
				t.Errorf("%s: no visitors", role)
			}
			continue
		}
		for _, port := range []string{"http", "8080", "script-api", "dispatch"} {
			if mayEnter(t, policy, visitor, port) || mayEnter(t, policy, stranger, port) {
				t.Errorf("%s: %s for anyone", role, port)
			}
		}
	}
	host := policyOf(t, all, "edgehost")
	for _, role := range []string{"api", "gateway", "deployer", "reconciler"} {
		for _, port := range []string{"script-api", "dispatch"} {
			if !mayEnter(t, host, podOf(all, role), port) || !mayLeave(t, policyOf(t, all, role), podOf(all, "edgehost"), port) {
				t.Errorf("%s cannot reach %s of the edge host", role, port)
			}
		}
	}
	if mayEnter(t, host, podOf(all, "edgehost"), "script-api") {
		t.Error("the edge host reaches its own script API")
	}
}

// What each role asks of others gets out; what only one profile needs is not
// open in the others.
func TestPoliciesLetOutWhatIsNeeded(t *testing.T) {
	t.Parallel()
	anywhere := peer{address: "203.0.113.7"}
	for name, values := range valueSets(t) {
		all := decode(t, with(t, values, "networkPolicy", nil))
		onprem := values["provider"] == "onprem"
		for _, role := range roles(all) {
			if role == "edgehost" {
				continue
			}
			policy := policyOf(t, all, role)
			for port, want := range map[string]bool{"53": true, "3306": true, "6379": true, "443": true, "9000": onprem, "22": false, "8080": false} {
				if mayLeave(t, policy, anywhere, port) != want {
					t.Errorf("%s: %s reaches port %s: %v", name, role, port, !want)
				}
			}
			transport := transportOf(values)
			google, amazon := peer{address: "169.254.169.254"}, peer{address: "169.254.170.23"}
			if mayLeave(t, policy, google, "80") != (transport == "pubsub") || mayLeave(t, policy, amazon, "80") != (transport == "sqs" || transport == "batch") {
				t.Errorf("%s: %s and the identity services", name, role)
			}
		}
	}
}

// Workers reach public addresses on two ports, and private ones that were opened.
func TestWayOutOfWorkers(t *testing.T) {
	t.Parallel()
	all := decode(t, valueSets(t)["sqs-onprem"])
	host := policyOf(t, all, "edgehost")
	for address, want := range map[string]bool{
		"1.1.1.1": true, "2606:4700::1111": true, "10.2.9.9": true, // opened by edgehost.egressAllow
		"10.3.0.1": false, "127.0.0.1": false, "169.254.169.254": false, "172.16.0.1": false, "192.168.1.1": false, "100.64.0.1": false, "fd00::1": false, "fe80::1": false,
	} {
		if mayLeave(t, host, peer{address: address}, "443") != want {
			t.Errorf("%s: %v", address, !want)
		}
	}
	if mayLeave(t, host, peer{address: "1.1.1.1"}, "25") || mayLeave(t, host, podOf(all, "api"), "http") {
		t.Error("the edge host reaches more than it should")
	}
}

// Restricting peers restricts: the values of the full example.
func TestPoliciesTakePeers(t *testing.T) {
	t.Parallel()
	all := decode(t, valueSets(t)["sqs-onprem"])
	api := policyOf(t, all, "api")
	for _, c := range []struct {
		to   string
		port string
		want bool
	}{{"10.3.0.9", "3307", true}, {"10.3.9.9", "3307", false}, {"10.3.0.9", "3306", false}, {"10.3.1.9", "6380", true}, {"10.9.9.9", "443", true}, {"203.0.113.7", "443", false}, {"10.4.0.9", "3128", true}} {
		if mayLeave(t, api, peer{address: c.to}, c.port) != c.want {
			t.Errorf("%s:%s is reached: %v", c.to, c.port, !c.want)
		}
	}
	if !mayEnter(t, api, visitor, "http") || mayEnter(t, api, stranger, "http") || mayEnter(t, api, monitor, "metrics") || !mayEnter(t, api, peer{namespace: "observability"}, "metrics") {
		t.Error("networkPolicy.httpFrom and monitoringNamespace are not heeded")
	}
	if got := of[*networkingv1.NetworkPolicy](decode(t, with(t, valueSets(t)["sqs-onprem"], "networkPolicy.enabled", false))); len(got) != 0 {
		t.Errorf("%d policies although they are off", len(got))
	}
}
