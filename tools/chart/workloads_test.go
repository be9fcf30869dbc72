package chart

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// How long each program takes at most to end after SIGTERM, in seconds: what
// docs/operations.md says of it, and for a deployer its own setting.
var drains = map[string]int64{"api": 90, "gateway": 90, "reconciler": 30, "edgehost": 60}

// S1-257: the shutdown grace of a deployer is 3600 s. No process is killed while
// it still drains, the pause before SIGTERM included.
func TestShutdownGrace(t *testing.T) {
	t.Parallel()
	deployers := 0
	for name, values := range valueSets(t) {
		for _, w := range workloads(decode(t, values)) {
			grace, container := *w.pod.Spec.TerminationGracePeriodSeconds, w.container(t)
			pause := int64(0)
			if container.Lifecycle != nil {
				pause = container.Lifecycle.PreStop.Sleep.Seconds
			}
			drain := drains[w.role]
			if w.role == "deployer" {
				deployers++
				if grace != 3600 {
					t.Errorf("%s: the deployer's grace is %d", name, grace)
				}
				given, err := strconv.ParseInt(env(container)["PUBSUB_DRAIN_TIMEOUT_SECONDS"], 10, 64)
				if err != nil || given != 3300 || env(container)["PUBSUB_MAX_LEASE_SECONDS"] != "3300" { // S1-255, S1-256
					t.Errorf("%s: the deployer drains for %d, %v", name, given, err)
				}
				drain = given
			}
			if grace <= pause+drain {
				t.Errorf("%s: %s has %d s of grace for a pause of %d s and a drain of %d s", name, w.name, grace, pause, drain)
			}
		}
	}
	if deployers != 3 {
		t.Errorf("%d deployers", deployers)
	}
}

// What Kubernetes calls "restricted" holds for each pod but one: an edge host
// that isolates Workers, which is root with named capabilities and says so.
func TestPodSecurity(t *testing.T) {
	t.Parallel()
	isolating := 0
	for name, values := range valueSets(t) {
		for pod, spec := range pods(decode(t, values)) {
			container := spec.Containers[0]
			if env(container)["EDGE_WORKERS_HOST_ISOLATION"] == "on" && !strings.HasSuffix(pod, "-check-config") {
				isolating++
				checkIsolating(t, pod, spec)
			} else {
				checkRestricted(t, name+": "+pod, spec)
			}
			c := container.SecurityContext
			if c.ReadOnlyRootFilesystem == nil || !*c.ReadOnlyRootFilesystem || c.Privileged != nil {
				t.Errorf("%s: %s may write to its image, or is privileged", name, pod)
			}
			if spec.HostNetwork || spec.HostPID || spec.HostIPC || spec.EnableServiceLinks == nil || *spec.EnableServiceLinks ||
				spec.AutomountServiceAccountToken == nil || *spec.AutomountServiceAccountToken {
				t.Errorf("%s: %s shares the node's namespaces, or gets service links or a token", name, pod)
			}
			for _, volume := range spec.Volumes {
				if volume.HostPath != nil || (volume.EmptyDir != nil && volume.EmptyDir.SizeLimit == nil) {
					t.Errorf("%s: %s has the volume %+v", name, pod, volume)
				}
			}
			if container.Resources.Limits.Memory().IsZero() || container.Resources.Requests.Cpu().IsZero() || container.Resources.Requests.Memory().IsZero() {
				t.Errorf("%s: %s has the resources %v", name, pod, container.Resources)
			}
		}
	}
	if isolating != 1 {
		t.Errorf("%d isolating edge hosts", isolating)
	}
}

func checkRestricted(t *testing.T, pod string, spec corev1.PodSpec) {
	t.Helper()
	p, c := spec.SecurityContext, spec.Containers[0].SecurityContext
	if p.RunAsNonRoot == nil || !*p.RunAsNonRoot || p.RunAsUser == nil || *p.RunAsUser != 65532 ||
		p.SeccompProfile == nil || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: pod security %+v", pod, p)
	}
	if c.AllowPrivilegeEscalation == nil || *c.AllowPrivilegeEscalation || c.Capabilities == nil ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(c.Capabilities.Add) != 0 || c.RunAsUser != nil || c.SeccompProfile != nil {
		t.Errorf("%s: container security %+v", pod, c)
	}
}

func checkIsolating(t *testing.T, pod string, spec corev1.PodSpec) {
	t.Helper()
	p, c := spec.SecurityContext, spec.Containers[0].SecurityContext
	want := []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID", "SYS_ADMIN", "SYS_RESOURCE"}
	if *p.RunAsUser != 0 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault ||
		!slices.Equal(c.Capabilities.Drop, []corev1.Capability{"ALL"}) || !slices.Equal(c.Capabilities.Add, want) {
		t.Errorf("%s: %+v %+v", pod, p, c)
	}
}

// The control key is a file that the process's group may read and nobody else,
// which is what the program asks for (docs/security.md).
func TestControlKeyFile(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		for _, w := range workloads(decode(t, values)) {
			if w.role == "edgehost" {
				continue
			}
			container, file := w.container(t), ""
			for _, mount := range container.VolumeMounts {
				for _, volume := range w.pod.Spec.Volumes {
					if volume.Name == mount.Name && volume.Secret != nil && mount.ReadOnly {
						file = mount.MountPath + "/" + volume.Secret.Items[0].Path
						if *volume.Secret.DefaultMode != 0o440 || *w.pod.Spec.SecurityContext.FSGroup != *w.pod.Spec.SecurityContext.RunAsGroup {
							t.Errorf("%s: %s has mode %o for the group %d", name, w.name, *volume.Secret.DefaultMode, *w.pod.Spec.SecurityContext.FSGroup)
						}
					}
				}
			}
			if want := env(container)["EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"]; file == "" || file != want {
				t.Errorf("%s: %s mounts %q and reads %q", name, w.name, file, want)
			}
		}
	}
}

// port gives the number of a container's named port.
func port(t *testing.T, container corev1.Container, name string) string {
	t.Helper()
	for _, p := range container.Ports {
		if p.Name == name {
			return strconv.Itoa(int(p.ContainerPort))
		}
	}
	t.Errorf("%s has no port %s", container.Name, name)
	return ""
}

// The ports are those that the programs are told to listen on, and the probes
// ask where health is served. Every folder that a program writes is a volume.
func TestPortsProbesAndFolders(t *testing.T) {
	t.Parallel()
	listeners := map[string]string{
		"EDGE_WORKERS_LISTEN_ADDR": "http", "EDGE_WORKERS_METRICS_ADDR": "metrics", "EDGE_WORKERS_HOST_METRICS_ADDR": "metrics",
		"EDGE_WORKERS_HOST_API_ADDR": "script-api", "EDGE_WORKERS_HOST_DISPATCH_ADDR": "dispatch",
	}
	for name, values := range valueSets(t) {
		for _, w := range workloads(decode(t, values)) {
			container := w.container(t)
			variables, told := env(container), 0
			for variable, portName := range listeners {
				address, has := variables[variable]
				if !has {
					continue
				}
				told++
				if ":"+port(t, container, portName) != address {
					t.Errorf("%s: %s listens on %s, its port %s is another", name, w.name, address, portName)
				}
			}
			if told != len(container.Ports) {
				t.Errorf("%s: %s has %d ports and listens on %d", name, w.name, len(container.Ports), told)
			}
			for path, probe := range map[string]*corev1.Probe{"/healthz": container.LivenessProbe, "/readyz": container.ReadinessProbe} {
				if probe.HTTPGet.Path != path || probe.HTTPGet.Port != intstr.FromString("metrics") {
					t.Errorf("%s: %s is probed at %+v", name, w.name, probe.HTTPGet)
				}
			}
			if start := container.StartupProbe; start.HTTPGet.Path != "/healthz" || start.PeriodSeconds*start.FailureThreshold < 120 {
				t.Errorf("%s: %s has %+v to start", name, w.name, start)
			}
			for _, variable := range []string{"EDGE_WORKERS_NPM_CACHE_DIR", "EDGE_WORKERS_HOST_DATA_DIR"} {
				folder := variables[variable]
				if folder != "" && !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
					return !m.ReadOnly && (m.MountPath == folder || strings.HasPrefix(folder, m.MountPath+"/"))
				}) {
					t.Errorf("%s: %s writes to %s, which is no volume", name, w.name, folder)
				}
			}
		}
	}
}

func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(labels.Set(set))
}

// selected gives the roles of the pods that a selector matches; test pods count.
func selected(t *testing.T, all manifests, selector *metav1.LabelSelector) []string {
	t.Helper()
	var found []string
	for _, w := range workloads(all) {
		if selects(t, selector, w.pod.Labels) {
			found = append(found, w.role)
		}
	}
	for _, p := range of[*corev1.Pod](all) {
		if selects(t, selector, p.Labels) {
			found = append(found, p.Name)
		}
	}
	slices.Sort(found)
	return found
}

// Each selector matches the pods of its own role and no others, and what scales
// or guards a workload names one that exists.
func TestSelectorsAndTargets(t *testing.T) {
	t.Parallel()
	counted := map[string]int{}
	for name, values := range valueSets(t) {
		all := decode(t, values)
		own := func(what, role string, selector *metav1.LabelSelector) {
			t.Helper()
			counted[what]++
			if got := selected(t, all, selector); !slices.Equal(got, []string{role}) {
				t.Errorf("%s: the %s of %s selects %v", name, what, role, got)
			}
		}
		role := func(o metav1.Object) string { return o.GetLabels()["app.kubernetes.io/component"] }
		for _, w := range workloads(all) {
			own("workload", w.role, w.selector)
			for _, spread := range w.pod.Spec.TopologySpreadConstraints {
				own("spread", w.role, spread.LabelSelector)
			}
		}
		for _, budget := range of[*policyv1.PodDisruptionBudget](all) {
			own("budget", role(budget), budget.Spec.Selector)
		}
		for _, policy := range of[*networkingv1.NetworkPolicy](all) {
			own("policy", role(policy), &policy.Spec.PodSelector)
		}
		for _, service := range of[*corev1.Service](all) {
			switch {
			case service.Spec.Type == corev1.ServiceTypeExternalName:
			case role(service) == "metrics":
				if got := selected(t, all, metav1.SetAsLabelSelector(service.Spec.Selector)); !slices.Equal(got, roles(all)) {
					t.Errorf("%s: the metrics service selects %v", name, got)
				}
			default:
				own("service", role(service), metav1.SetAsLabelSelector(service.Spec.Selector))
				for _, p := range service.Spec.Ports {
					for _, w := range workloads(all) {
						if w.role == role(service) {
							port(t, w.container(t), p.TargetPort.StrVal)
						}
					}
				}
			}
		}
		checkScaling(t, name, all, counted)
	}
	want := map[string]int{"workload": 17, "spread": 34, "budget": 15, "policy": 17, "service": 10, "hpa": 3, "scaledobject": 2}
	if !maps.Equal(counted, want) {
		t.Errorf("checked %v, want %v", counted, want)
	}
}

// checkScaling: what is scaled exists, and has no fixed number of replicas that
// each upgrade would go back to.
func checkScaling(t *testing.T, name string, all manifests, counted map[string]int) {
	t.Helper()
	scaled := map[string]bool{}
	for _, hpa := range of[*autoscalingv2.HorizontalPodAutoscaler](all) {
		counted["hpa"]++
		if hpa.Spec.ScaleTargetRef.Kind != "Deployment" || hpa.Spec.ScaleTargetRef.APIVersion != "apps/v1" {
			t.Errorf("%s: %s scales %+v", name, hpa.Name, hpa.Spec.ScaleTargetRef)
		}
		scaled[hpa.Spec.ScaleTargetRef.Name] = true
	}
	for _, object := range of[*scaledObject](all) {
		counted["scaledobject"]++
		scaled[object.Spec.ScaleTargetRef.Name] = true
		for _, trigger := range object.Spec.Triggers {
			for key, value := range trigger.Metadata {
				if !slices.Contains(triggerMetadata[trigger.Type], key) || value == "" {
					t.Errorf("%s: the trigger %s has %s=%q", name, trigger.Type, key, value)
				}
			}
			if trigger.AuthenticationRef.Name != "kit-queue" { // that one is the operator's own
				named[*triggerAuthentication](t, all, trigger.AuthenticationRef.Name)
			}
		}
	}
	for _, w := range workloads(all) {
		if w.kind == "StatefulSet" && *w.replicas != 1 {
			t.Errorf("%s: %d edge hosts share a data folder", name, *w.replicas)
		}
		if (w.replicas == nil) != scaled[w.name] {
			t.Errorf("%s: %s is scaled: %v, and has replicas %v", name, w.name, scaled[w.name], w.replicas)
		}
		delete(scaled, w.name)
	}
	if len(scaled) > 0 {
		t.Errorf("%s: %v are scaled and do not exist", name, scaled)
	}
}

// The ScaledObject looks at the queue that the deployers read.
func TestScalingByTheQueue(t *testing.T) {
	t.Parallel()
	sets := valueSets(t)
	for name, want := range map[string]map[string]string{
		"pubsub-cloud": {"subscriptionName": "projects/example-production/subscriptions/edge-workers-deployers", "mode": "SubscriptionSize", "value": "1"},
		"sqs-onprem": {
			"queueURL": "https://sqs.kit.internal/000000000000/edge-workers-deployments", "awsRegion": "us-east-1",
			"awsEndpoint": "https://sqs.kit.internal", "queueLength": "1", "scaleOnInFlight": "true",
		},
	} {
		objects := of[*scaledObject](decode(t, sets[name]))
		if len(objects) != 1 || !maps.Equal(objects[0].Spec.Triggers[0].Metadata, want) {
			t.Errorf("%s: %+v", name, objects)
		}
		// docs/scaling.md: five share a token of Cloudflare; a drain is long.
		spec := objects[0].Spec
		if window := spec.Advanced.HorizontalPodAutoscalerConfig.Behavior.ScaleDown.StabilizationWindowSeconds; *spec.MaxReplicaCount != 5 || *window != 900 {
			t.Errorf("%s: at most %d deployers, taken away after %d s", name, *spec.MaxReplicaCount, *window)
		}
	}
	all := decode(t, sets["pubsub-cloud"])
	for deployer, provider := range map[string]string{"prod-edge-workers-deployer": "gcp"} {
		if got := named[*triggerAuthentication](t, all, deployer).Spec.PodIdentity.Provider; got != provider {
			t.Errorf("pod identity %q", got)
		}
	}
}

// The accounts that pods use are made, unless they are the operator's own; the
// images are those of the Dockerfile's targets.
func TestAccountsAndImages(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		all := decode(t, values)
		for _, w := range workloads(all) {
			account := w.pod.Spec.ServiceAccountName
			if account != "edge-reconciler" {
				named[*corev1.ServiceAccount](t, all, account)
			}
			registry := values["image"].(map[string]any)["registry"].(string)
			if image := w.container(t).Image; !strings.HasPrefix(image, registry+"/"+programOf(w.role)+":") {
				t.Errorf("%s: %s runs %s", name, w.name, image)
			}
		}
	}
	account := named[*corev1.ServiceAccount](t, decode(t, valueSets(t)["sqs-cloud"]), "prod-edge-workers-deployer")
	if account.Annotations["eks.amazonaws.com/role-arn"] != "arn:aws:iam::111122223333:role/edge-workers-deployer" {
		t.Errorf("annotations %v", account.Annotations)
	}
}

// Calls to Workers go to the gateway where there is one, all else to the api.
func TestIngress(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]map[string]string{
		"sqs-cloud":  {"/": "prod-edge-workers-api"},
		"sqs-onprem": {"/": "edge-kit-api", "/w/": "edge-kit-gateway", "/worker/invoke/": "edge-kit-gateway"},
	} {
		all := decode(t, valueSets(t)[name])
		got := map[string]string{}
		for _, ingress := range of[*networkingv1.Ingress](all) {
			for _, path := range ingress.Spec.Rules[0].HTTP.Paths {
				got[path.Path] = path.Backend.Service.Name
				service := named[*corev1.Service](t, all, path.Backend.Service.Name)
				if service.Spec.Ports[0].Name != path.Backend.Service.Port.Name {
					t.Errorf("%s: %s has no port %s", name, service.Name, path.Backend.Service.Port.Name)
				}
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}

// The monitor finds the metrics service, and that one all pods of the release.
func TestServiceMonitor(t *testing.T) {
	t.Parallel()
	monitors := 0
	for name, values := range valueSets(t) {
		all := decode(t, values)
		for _, monitor := range of[*monitoring.ServiceMonitor](all) {
			monitors++
			var found []string
			for _, service := range of[*corev1.Service](all) {
				if selects(t, &monitor.Spec.Selector, service.Labels) {
					found = append(found, service.Name)
					if service.Spec.Ports[0].Name != monitor.Spec.Endpoints[0].Port {
						t.Errorf("%s: %s has no port %s", name, service.Name, monitor.Spec.Endpoints[0].Port)
					}
				}
			}
			if len(found) != 1 || !strings.HasSuffix(found[0], "-metrics") {
				t.Errorf("%s: the monitor selects %v", name, found)
			}
		}
	}
	if monitors != 2 {
		t.Errorf("%d monitors", monitors)
	}
}
