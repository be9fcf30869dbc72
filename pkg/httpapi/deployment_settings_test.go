package httpapi_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/builder"
	"github.com/teamsync/edge-workers/pkg/httpapi/gen"
	"github.com/teamsync/edge-workers/pkg/outbox"
	"github.com/teamsync/edge-workers/test/liveplane"
)

// deployWith asks for a deployment at a revision with settings, or without
// when they are empty.
func (l *liveAPI) deployWith(v models.Version, base int64, settings string) answer {
	l.t.Helper()
	if settings != "" {
		settings = `,"operation_settings":` + settings
	}
	return l.send("POST", "/worker/deployments", fmt.Sprintf(`{"version_id":%q,"base_revision":%d%s}`, v.ID, base, settings))
}

// staged counts the staging commands since the last call.
func (l *liveAPI) staged() int {
	n := 0
	for _, name := range l.system.Front.Operations() {
		if name == "operation_settings.stage" {
			n++
		}
	}
	return n
}

const mismatch = `{"detail":{"code":"operation_settings_dedupe_mismatch","message":"Deployment settings differ from the existing ticket"}}`

// S2-082 to S2-086: the digest of a deployment's settings is a fixed vector that
// neither the order of keys nor white space changes, null is another request
// than a field that is left out, and a retry with other settings is refused in
// both directions without touching ticket or Worker.
func TestSettingsDigestOverHTTP(t *testing.T) {
	for _, c := range []struct{ settings, again, digest string }{
		{`{"base_revision":0,"operations":{"a":{"access":"public"}}}`, "{ \"operations\" : {\"a\":{ \"access\":\"publi\\u0063\"}},\n\"base_revision\":0}", "64e5c2b81d6a1cc9becd7f075706f4da9201bdb282b81dd390cd6c0579d5850f"},
		{`{"base_revision":0,"default_service_account_id":null,"operations":{"a":{"access":"public"}}}`, `{"operations":{"a":{"access":"public"}},"default_service_account_id":null,"base_revision":0}`, "393cd1255e1c546b7863c0c5143e392c165950dce35d7762efed56d53fd96ff4"},
		{"", "", ""}, // S2-084
	} {
		t.Run(c.settings, func(t *testing.T) {
			l := onLive(t)
			second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
			var made, again gen.Ticket
			l.deployWith(second, 2, c.settings).into(202, &made)
			if got := l.staged(); got != map[bool]int{true: 1, false: 0}[c.settings != ""] { // S2-041
				t.Errorf("%d staging commands", got)
			}
			payload, err := outbox.DecodeDeploy(l.Row(made.TicketID))
			l.must(err)
			if got := payload.OperationSettingsDigest; (got == nil) != (c.digest == "") || (got != nil && *got != c.digest) {
				t.Errorf("digest %v", got)
			}
			before := l.Row(made.TicketID)
			l.deployWith(second, 2, c.again).into(202, &again)
			if again.TicketID != made.TicketID {
				t.Error("the same request got another ticket")
			}
			for _, other := range []string{
				"", `{"base_revision":0,"operations":{"a":{"access":"private"}}}`, `{"base_revision":0,"operations":{}}`,
				`{"base_revision":0,"operations":{"a":{"access":"public"}}}`,
				`{"base_revision":0,"default_service_account_id":null,"operations":{"a":{"access":"public"}}}`,
				`{"base_revision":0,"operations":{"a":{"access":"public","service_account_id":null}}}`,
			} {
				if other != c.settings {
					l.deployWith(second, 2, other).is(409, mismatch)
				}
			}
			after := l.Row(made.TicketID)
			if n := l.staged(); n != 0 || !reflect.DeepEqual(after, before) || len(l.Published.Messages()) != 2 {
				t.Errorf("a refused retry touched the ticket or the Worker: staged %d, %d messages, %+v, before %+v", n, len(l.Published.Messages()), after, before)
			}
		})
	}
}

// S2-089, S2-093 to S2-097, S2-103: a deployment goes live with the settings of
// its request over those of the live release.
func TestDeploymentWithSettings(t *testing.T) {
	l := onLive(t)
	l.send("PUT", accountsPath+"/robot/credentials", `{"username":"u","password":"p"}`).into(200, &gen.ServiceAccount{})
	l.send("PUT", settingsPath, `{"base_revision":0,"default_service_account_id":"robot","operations":{"a":{"access":"public"},"b":{"access":"api_key","service_account_id":"robot"}}}`).
		into(200, &gen.OperationSettings{})
	var made gen.OperationSettingsKey
	l.send("POST", settingsPath+"/b/api-key/rotate", `{"base_revision":1}`).into(200, &made)
	four := fmt.Sprintf("%q", made.APIKey[len(made.APIKey)-4:])
	second := l.SubmitArchive(archiveOf(t, showing("two", "b", "c")))

	// S2-098, S2-099, S2-104, word for word; nothing is staged and no row is left.
	tickets := l.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'")
	l.staged()
	l.deployWith(second, 2, `{"base_revision":2,"operations":{"a":{"access":"public"}}}`).
		shows(422, `{"detail":[{"type":"operation_not_found","loc":["body","operation_settings","operations","a"],"msg":"operation_id is not present in the target release manifest"}]}`)
	l.deployWith(second, 2, `{"base_revision":2,"default_service_account_id":"ghost","operations":{"c":{"access":"public","service_account_id":"nobody"}}}`).
		shows(422, `{"detail":[{"type":"service_account_not_found","loc":["body","operation_settings","default_service_account_id"],"msg":"the service account has no credentials"},`+
			`{"type":"service_account_not_found","loc":["body","operation_settings","operations","c","service_account_id"],"msg":"the service account has no credentials"}]}`)
	for _, base := range []int{0, 1, 3} {
		l.deployWith(second, 2, fmt.Sprintf(`{"base_revision":%d,"operations":{}}`, base)).is(409, `{"detail":"Operation-settings revision is stale"}`)
	}
	l.deployWith(l.live, 2, `{"base_revision":2,"operations":{}}`).is(409, `{"detail":{"code":"operation_settings_same_release","message":"The version is the release that is live; change its settings without a deployment"}}`)
	if l.staged() != 0 || l.count("SELECT COUNT(*) FROM edge_worker_outbox WHERE operation = 'deploy'") != tickets {
		t.Error("a refused deployment staged something or left a ticket")
	}

	l.deployWith(second, 2, `{"base_revision":2,"default_service_account_id":null,"operations":{"c":{"access":"disabled","service_account_id":"robot"}}}`).into(202, &gen.Ticket{})
	if l.staged() != 1 || l.count("SELECT COUNT(*) FROM edge_worker_audit_logs WHERE action = 'operation_settings.staged'") != 1 {
		t.Error("the settings were not staged once")
	}
	before := l.get(settingsPath) // the live release's, untouched
	before.shows(200, l.table(2, `"robot"`, `"T"`, [3]string{"public", "null", "null"}, [3]string{"api_key", four, `"robot"`}))
	l.system.Run()
	var after gen.OperationSettings
	l.get(settingsPath).into(200, &after)
	kept, added := after.Operations["b"], after.Operations["c"]
	if after.Revision != 3 || after.DefaultServiceAccountID != nil || len(after.Operations) != 2 || after.ReleaseGeneration != l.Version(second.ID).ReleaseGeneration {
		t.Errorf("%+v", after)
	}
	if kept.Access != "api_key" || kept.APIKeyLastFour == nil || *kept.APIKeyLastFour != strings.Trim(four, `"`) || kept.ServiceAccountID == nil || *kept.ServiceAccountID != "robot" {
		t.Errorf("b is %+v", kept)
	}
	if added.Access != "disabled" || added.APIKeyConfigured || added.ServiceAccountID == nil {
		t.Errorf("c is %+v", added)
	}
}

// D13: a first deployment takes no settings, nor does one over or of a release
// that is too old for them.
func TestSettingsThatNoReleaseTakes(t *testing.T) {
	wanted := `{"base_revision":0,"operations":{}}`
	t.Run("first", func(t *testing.T) {
		l := withoutRelease(t)
		first := l.SubmitArchive(archiveOf(t, showing("one", "a", "b")))
		l.deployWith(first, 1, wanted).is(409, `{"detail":{"code":"operation_settings_live_release_required","message":"A first deployment takes no operation settings; deploy, then set them"}}`)
		l.deployWith(first, 1, "").into(202, &gen.Ticket{}) // the control
	})
	t.Run("old", func(t *testing.T) {
		l := onRelease(t, builder.V2_6)
		second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
		l.deployWith(second, 2, wanted).is(409, noSettings)
		l.deployWith(second, 2, "").into(202, &gen.Ticket{})
	})
	t.Run("lost", func(t *testing.T) {
		l := onLive(t)
		second := l.SubmitArchive(archiveOf(t, showing("two", "a", "b")))
		l.system.Front.Once("operation_settings.stage", liveplane.LoseRequest)
		l.deployWith(second, 2, wanted).is(503, unreachable)
		l.system.Front.Once("operation_settings.stage", liveplane.LoseReply) // the receipt tells
		l.deployWith(second, 2, wanted).into(202, &gen.Ticket{})
	})
}
