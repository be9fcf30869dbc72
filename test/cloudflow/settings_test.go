package cloudflow

import (
	"encoding/json"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/live"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// S1-162, S1-164, S2-091, S2-093, S2-100 to S2-102: a Worker in the cloud is
// changed through the dispatcher, each change with its row and its fact, and
// its operation settings go along with the next release.
func TestChangesInTheCloud(t *testing.T) {
	s := newSystem(t)
	first := s.deploy(s.small("one"))
	ctx, by := t.Context(), live.By{Tenant: s.Tenant, Actor: s.Actor}
	_, err := s.Live.ReplaceAccessPolicy(ctx, by, 0, "public", []string{"192.0.2.0/24"})
	s.must(err)
	key, err := s.Live.RotateKey(ctx, by, 1)
	s.must(err)
	_, err = s.Live.ReplaceRuntimeConfig(ctx, by, 0, json.RawMessage(`{"a":1}`))
	s.must(err)
	secret, err := s.Live.PutSecret(ctx, by, "TOKEN", "value")
	s.must(err)
	if secret.SHA256 != canonical.SHA256([]byte("value")) {
		t.Errorf("secret %+v", secret)
	}
	_, err = s.Live.PutCredentials(ctx, by, "robot", "user", "password")
	s.must(err)
	request, err := settings.ReadRequest([]byte(`{"base_revision":0,"operations":{"echo.say":{"access":"api_key","service_account_id":"robot"}}}`))
	s.must(err)
	before, err := s.Live.ReplaceOperations(ctx, by, request)
	s.must(err)

	second := s.deploy(s.small("two"))
	after, err := s.Live.Operations(ctx, by)
	s.must(err)
	if before.ReleaseGeneration != first.version.ReleaseGeneration || after.ReleaseGeneration != second.version.ReleaseGeneration ||
		after.Revision != before.Revision+1 || after.Operations["echo.say"].Access != "api_key" || after.Operations["echo.say"].ServiceAccountID == nil {
		t.Errorf("before %+v, after %+v", before, after)
	}
	policy, err := s.Live.AccessPolicy(ctx, by)
	s.must(err)
	if policy.Mode != "public" || policy.APIKeyLastFour == nil || *policy.APIKeyLastFour != key.Key[len(key.Key)-4:] {
		t.Errorf("policy %+v", policy)
	}
	var rows []models.Outbox
	s.must(s.Tenant.Own(s.DB.Read(ctx)).Where("operation = ?", models.OperationControlAudit).Find(&rows).Error)
	facts := map[string]string{}
	for _, fact := range s.Facts() {
		facts[fact.ID] = fact.Action
	}
	for _, row := range rows {
		if row.Status != models.OutboxCompleted || facts[row.ID] == "" {
			t.Errorf("row %s %s, fact %q", row.ID, row.Status, facts[row.ID])
		}
	}
	if len(rows) != 6 {
		t.Errorf("%d rows", len(rows))
	}
}
