package chart

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// apiVersions are those that the chart may use: stable ones, and the two that
// its optional parts bring a CRD for.
var apiVersions = []string{
	"v1", "apps/v1", "autoscaling/v2", "networking.k8s.io/v1", "policy/v1", "keda.sh/v1alpha1", "monitoring.coreos.com/v1",
}

// decoder refuses unknown and doubled fields, wrong types and unknown kinds.
func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, addKeda, monitoring.AddToScheme} {
		err := add(scheme)
		if err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}

// manifests is a rendered release.
type manifests []runtime.Object

func decode(t *testing.T, values map[string]any) manifests {
	t.Helper()
	var all manifests
	strict := decoder(t)
	for file, text := range mustRender(t, values) {
		if strings.HasSuffix(file, ".txt") || strings.TrimSpace(text) == "" {
			continue
		}
		documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
		for {
			document, err := documents.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(bytes.TrimSpace(document)) == 0 {
				continue
			}
			object, kind, err := strict.Decode(document, nil, nil)
			if err != nil {
				t.Fatalf("%s: %v\n%s", file, err, document)
			}
			if version := kind.GroupVersion().String(); !slices.Contains(apiVersions, version) {
				t.Errorf("%s: %s is none of %v", file, version, apiVersions)
			}
			all = append(all, object)
		}
	}
	return all
}

// of gives the objects of one kind.
func of[T runtime.Object](all manifests) []T {
	var found []T
	for _, object := range all {
		one, ok := object.(T)
		if ok {
			found = append(found, one)
		}
	}
	return found
}

func named[T interface {
	runtime.Object
	metav1.Object
}](t *testing.T, all manifests, name string) T {
	t.Helper()
	var none T
	for _, object := range of[T](all) {
		if object.GetName() == name {
			return object
		}
	}
	t.Fatalf("there is no %T %s", none, name)
	return none
}

// workload is what runs pods and lives on: a Deployment or a StatefulSet.
type workload struct {
	kind, name, role string
	selector         *metav1.LabelSelector
	pod              corev1.PodTemplateSpec
	replicas         *int32
}

func workloads(all manifests) []workload {
	var found []workload
	for _, d := range of[*appsv1.Deployment](all) {
		found = append(found, workload{"Deployment", d.Name, d.Labels["app.kubernetes.io/component"], d.Spec.Selector, d.Spec.Template, d.Spec.Replicas})
	}
	for _, s := range of[*appsv1.StatefulSet](all) {
		found = append(found, workload{"StatefulSet", s.Name, s.Labels["app.kubernetes.io/component"], s.Spec.Selector, s.Spec.Template, s.Spec.Replicas})
	}
	slices.SortFunc(found, func(a, b workload) int { return strings.Compare(a.name, b.name) })
	return found
}

func roles(all manifests) []string {
	var found []string
	for _, w := range workloads(all) {
		found = append(found, w.role)
	}
	slices.Sort(found)
	return found
}

// container is the only one of a workload.
func (w workload) container(t *testing.T) corev1.Container {
	t.Helper()
	if len(w.pod.Spec.Containers) != 1 || len(w.pod.Spec.InitContainers) != 0 {
		t.Fatalf("%s has %d containers", w.name, len(w.pod.Spec.Containers))
	}
	return w.pod.Spec.Containers[0]
}

// pods gives the template of every workload, and the test pods by their names.
func pods(all manifests) map[string]corev1.PodSpec {
	found := map[string]corev1.PodSpec{}
	for _, w := range workloads(all) {
		found[w.name] = w.pod.Spec
	}
	for _, p := range of[*corev1.Pod](all) {
		found[p.Name] = p.Spec
	}
	return found
}

// Every manifest of every value set decodes strictly, has a name of its own and
// stays in the release's namespace.
func TestManifestsDecode(t *testing.T) {
	t.Parallel()
	for name, values := range valueSets(t) {
		all := decode(t, values)
		if len(all) < 6 {
			t.Errorf("%s: only %d manifests", name, len(all))
		}
		seen := map[string]bool{}
		for _, object := range all {
			meta := object.(metav1.Object)
			key := object.GetObjectKind().GroupVersionKind().Kind + "/" + meta.GetName()
			if seen[key] || meta.GetNamespace() != namespace || len(meta.GetName()) > 63 {
				t.Errorf("%s: %s is there twice, in namespace %q, or has too long a name", name, key, meta.GetNamespace())
			}
			seen[key] = true
			if meta.GetLabels()["app.kubernetes.io/instance"] != release {
				t.Errorf("%s: %s has labels %v", name, key, meta.GetLabels())
			}
		}
	}
}

// The positive controls of the decoder.
func TestDecoderIsStrict(t *testing.T) {
	t.Parallel()
	strict := decoder(t)
	for what, text := range map[string]string{
		"unknown field":    "apiVersion: apps/v1\nkind: Deployment\nspec: {replicaz: 1}",
		"field of a CRD":   "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {minReplicas: 1}",
		"another CRD's":    "apiVersion: monitoring.coreos.com/v1\nkind: ServiceMonitor\nspec: {endpoint: []}",
		"wrong type":       "apiVersion: apps/v1\nkind: Deployment\nspec: {replicas: \"x\"}",
		"doubled field":    "apiVersion: v1\nkind: Service\nspec: {type: ClusterIP, type: NodePort}",
		"unknown kind":     "apiVersion: v1\nkind: Servise",
		"no such version":  "apiVersion: apps/v3\nkind: Deployment",
		"field in a probe": "apiVersion: v1\nkind: Pod\nspec: {containers: [{name: a, livenessProbe: {httpGet: {port: 1, url: x}}}]}",
	} {
		_, _, err := strict.Decode([]byte(text), nil, nil)
		if err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

// What runs where: legacy has neither deployers nor reconcilers (S1-251), with
// batch the deployers are jobs elsewhere, and the edge host is on-prem only.
func TestRolesOfEachProfile(t *testing.T) {
	t.Parallel()
	want := map[string][]string{
		"legacy-cloud":  {"api"},
		"pubsub-cloud":  {"api", "deployer", "gateway", "reconciler"},
		"sqs-cloud":     {"api", "deployer", "reconciler"},
		"batch-cloud":   {"api", "reconciler"},
		"legacy-onprem": {"api", "edgehost"},
		"sqs-onprem":    {"api", "deployer", "edgehost", "gateway", "reconciler"},
	}
	for name, values := range valueSets(t) {
		if got := roles(decode(t, values)); !slices.Equal(got, want[name]) {
			t.Errorf("%s: %v, want %v", name, got, want[name])
		}
	}
}
