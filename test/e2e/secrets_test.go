package e2e_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/control"
)

// A run leaves no secret behind anywhere but in the files that hold it on
// purpose, keys/ and ready.json: not in the database, the stores, the most
// detailed log, nor in any answer.
func TestSecretsStayHome(t *testing.T) {
	t.Parallel()
	const marker = "planted-marker-0123456789"
	d := start(t, filepath.Join(t.TempDir(), "data"), "--log-level", "debug")
	d.release(d.ManagerToken, packed(t, project()...))
	d.says("first")
	d.submit(d.ManagerToken, []byte("no archive"))
	for _, token := range []string{d.ManagerToken + "x", d.CompanyAdminToken, d.PlatformAdminToken, ""} {
		d.call("GET", "/worker", token, "", "")
		d.json("POST", "/worker/deployments", token, `{"version_id":"`+d.PlatformAdminToken[:40]+`"}`)
		d.json("POST", "/worker/invoke/say", token, "{}")
	}
	d.call("GET", "/w/"+d.ManagerToken+"/say?token="+d.ManagerToken, d.ManagerToken, "", "")
	d.json("PUT", "/platform/companies/"+marker, d.PlatformAdminToken, `{"name":"`+marker+`"}`)
	if _, errs, exit := d.run("--token", d.CompanyAdminToken, "versions"); exit == 0 || strings.Contains(errs, d.CompanyAdminToken) {
		t.Errorf("edgectl with a token that does not suffice: %d %s", exit, errs)
	}
	secrets := d.secrets()
	plain, err := os.ReadFile(d.data + ".log")
	must(t, err)
	if !bytes.Contains(plain, []byte(`"level":"DEBUG"`)) || !bytes.Contains(plain, []byte(`"status":401`)) {
		t.Error("the log is not the detailed one")
	}
	if hits := d.search(map[string][]byte{"marker": []byte(marker)}); !strings.Contains(hits, "edge.db") || !strings.Contains(hits, "answers") {
		t.Errorf("the search does not see what is there: %q", hits)
	}
	if hits := d.search(secrets); hits != "" {
		t.Errorf("secrets are in:\n%s", hits)
	}
	d.stop()
	if hits := d.search(secrets); hits != "" {
		t.Errorf("after the end secrets are in:\n%s", hits)
	}
	must(t, os.WriteFile(filepath.Join(d.data, "planted"), secrets["control key, base64"], 0o600)) // the control
	must(t, os.WriteFile(d.data+".log", append(plain, secrets["manager token's signature"]...), 0o600))
	if hits := d.search(secrets); !strings.Contains(hits, "planted: control key, base64") || !strings.Contains(hits, "log: manager token's signature") {
		t.Errorf("planted secrets are found in:\n%s", hits)
	}
}

// secrets are the needles, in each spelling in which they might leak.
func (d *dev) secrets() map[string][]byte {
	d.t.Helper()
	out := map[string][]byte{}
	for _, name := range []string{"control", "auth"} {
		raw, err := os.ReadFile(filepath.Join(d.data, "keys", name+".pem"))
		must(d.t, err)
		block, _ := pem.Decode(raw)
		if block == nil {
			d.t.Fatalf("%s.pem is no PEM", name)
		}
		out[name+" key, PEM"] = bytes.TrimSpace(bytes.Split(raw, []byte("\n"))[1])
		out[name+" key, base64"] = []byte(base64.StdEncoding.EncodeToString(block.Bytes))
	}
	key, err := control.LoadKey(filepath.Join(d.data, "keys", "control.pem"))
	must(d.t, err)
	seed := key.Seed()
	out["control seed"] = seed
	out["control seed, hex"] = []byte(hex.EncodeToString(seed))
	out["control seed, base64"] = []byte(base64.RawStdEncoding.EncodeToString(seed))
	out["control seed, base64url"] = []byte(base64.RawURLEncoding.EncodeToString(seed))
	token, err := os.ReadFile(filepath.Join(d.data, "keys", "edge-host.token"))
	must(d.t, err)
	out["host token"] = bytes.TrimSpace(token)
	for name, token := range map[string]string{"manager": d.ManagerToken, "company admin": d.CompanyAdminToken, "platform admin": d.PlatformAdminToken} {
		out[name+" token's signature"] = []byte(token[strings.LastIndex(token, ".")+1:])
	}
	for name, needle := range out {
		if len(needle) < 32 {
			d.t.Fatalf("%s is too short to be searched for", name)
		}
	}
	return out
}

// search names each place that holds one of the needles: "file: needle\n".
func (d *dev) search(needles map[string][]byte) string {
	d.t.Helper()
	var hits strings.Builder
	look := func(where string, raw []byte) {
		for name, needle := range needles {
			if bytes.Contains(raw, needle) {
				hits.WriteString(where + ": " + name + "\n")
			}
		}
	}
	must(d.t, filepath.WalkDir(d.data, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(d.data, path)
		if err != nil || inside == "keys" {
			return filepath.SkipDir
		}
		if !e.Type().IsRegular() || inside == "ready.json" {
			return nil
		}
		raw, err := os.ReadFile(path)
		look(inside, raw)
		return err
	}))
	raw, err := os.ReadFile(d.data + ".log")
	must(d.t, err)
	look("log", raw)
	seen.Lock()
	look("answers", seen.Bytes())
	seen.Unlock()
	return hits.String()
}
