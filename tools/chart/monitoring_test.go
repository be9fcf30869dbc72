package chart

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
)

var (
	metricName = regexp.MustCompile(`Name:\s*"(edge_(?:workers|host)_[a-z_]+)"`)
	metricWord = regexp.MustCompile(`\bedge_(?:workers|host)_[a-z_]+`)
	label      = regexp.MustCompile(`([a-z]+)(?:=|=~)"([^"]*)"`)
)

// product is the text of the product's Go files.
func product(t *testing.T) string {
	t.Helper()
	var text strings.Builder
	for _, folder := range []string{"pkg", "cmd", "models", "transports"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return err
			}
			content, err := os.ReadFile(name)
			text.Write(content)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}

func alerts(t *testing.T, values map[string]any) []monitoring.Rule {
	t.Helper()
	rules := of[*monitoring.PrometheusRule](decode(t, values))
	if len(rules) != 1 || len(rules[0].Spec.Groups) != 1 {
		t.Fatalf("%d rules", len(rules))
	}
	return rules[0].Spec.Groups[0].Rules
}

// Every alert is a valid query on metrics and label values that the code has,
// of this release only, and has a section in docs/operations.md.
func TestAlerts(t *testing.T) {
	t.Parallel()
	code, operations := product(t), read(t, root+"/docs/operations.md")
	var metrics []string
	for _, match := range metricName.FindAllStringSubmatch(code, -1) {
		metrics = append(metrics, match[1])
	}
	queries := parser.NewParser(parser.Options{})
	all := alerts(t, valueSets(t)["sqs-onprem"])
	if len(all) < 9 {
		t.Errorf("only %d alerts", len(all))
	}
	for _, alert := range all {
		text := alert.Expr.String()
		_, err := queries.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v\n%s", alert.Alert, err, text)
		}
		for _, name := range metricWord.FindAllString(text, -1) {
			if !slices.Contains(metrics, name) {
				t.Errorf("%s: there is no metric %s", alert.Alert, name)
			}
		}
		for _, match := range label.FindAllStringSubmatch(text, -1) {
			if match[1] == "namespace" || match[1] == "service" || match[1] == "class" {
				continue
			}
			for value := range strings.SplitSeq(match[2], "|") {
				if !strings.Contains(code, `"`+value+`"`) {
					t.Errorf("%s: no %s is %q", alert.Alert, match[1], value)
				}
			}
		}
		if strings.Count(text, "{") != strings.Count(text, `namespace="edge",service="edge-kit-metrics"`) {
			t.Errorf("%s looks at other releases: %s", alert.Alert, text)
		}
		if !strings.Contains(operations, "\n### "+alert.Alert+"\n") {
			t.Errorf("docs/operations.md has no section %s", alert.Alert)
		}
		if want := "docs/operations.md#" + strings.ToLower(alert.Alert); !strings.HasSuffix(alert.Annotations["runbook_url"], want) {
			t.Errorf("%s: the runbook is %s", alert.Alert, alert.Annotations["runbook_url"])
		}
		if alert.Annotations["summary"] == "" || !slices.Contains([]string{"critical", "warning"}, alert.Labels["severity"]) {
			t.Errorf("%s: %v %v", alert.Alert, alert.Annotations, alert.Labels)
		}
	}
	if _, err := queries.ParseExpr("sum by (a) increase(b[5m]"); err == nil { // the positive control
		t.Error("a broken query is taken")
	}
}

// In the cloud nothing is asked of an edge host.
func TestAlertsInTheCloud(t *testing.T) {
	t.Parallel()
	for _, alert := range alerts(t, valueSets(t)["pubsub-cloud"]) {
		if strings.Contains(alert.Expr.String(), "edge_host_") {
			t.Errorf("%s looks at an edge host", alert.Alert)
		}
	}
}
