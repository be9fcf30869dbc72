package cloudflare_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/provider/cloudflare"
)

func TestParams(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		change func(*cloudflare.Params)
		says   string // "" when accepted
	}{
		"complete":              {func(*cloudflare.Params) {}, ""},
		"default origin":        {func(p *cloudflare.Params) { p.Origin = "" }, ""},
		"no account":            {func(p *cloudflare.Params) { p.AccountID = "" }, "account id"},
		"account in capitals":   {func(p *cloudflare.Params) { p.AccountID = strings.ToUpper(account) }, "account id"},
		"account too long":      {func(p *cloudflare.Params) { p.AccountID += "0" }, "account id"},
		"account with a line":   {func(p *cloudflare.Params) { p.AccountID += "\n" }, "account id"},
		"account with a path":   {func(p *cloudflare.Params) { p.AccountID = "../" + account[3:] }, "account id"},
		"no namespace":          {func(p *cloudflare.Params) { p.Namespace = "" }, "dispatch namespace"},
		"longest namespace":     {func(p *cloudflare.Params) { p.Namespace = strings.Repeat("a", 64) }, ""},
		"namespace too long":    {func(p *cloudflare.Params) { p.Namespace = strings.Repeat("a", 65) }, "dispatch namespace"},
		"on-prem scope":         {func(p *cloudflare.Params) { p.Namespace = "onprem:0123456789ab" }, "dispatch namespace"},
		"namespace with a path": {func(p *cloudflare.Params) { p.Namespace = "a/b" }, "dispatch namespace"},
		"namespace in capitals": {func(p *cloudflare.Params) { p.Namespace = "Edge" }, "dispatch namespace"},
		"namespace with a line": {func(p *cloudflare.Params) { p.Namespace += "\n" }, "dispatch namespace"},
		"one letter":            {func(p *cloudflare.Params) { p.Namespace = "a" }, ""},
		"shared":                {func(p *cloudflare.Params) { p.Shared = []string{"shared-1", "shared-2"} }, ""},
		"own is shared":         {func(p *cloudflare.Params) { p.Shared = []string{namespace} }, "twice"},
		"shared twice":          {func(p *cloudflare.Params) { p.Shared = []string{"a", "b", "a"} }, "twice"},
		"wrong shared":          {func(p *cloudflare.Params) { p.Shared = []string{""} }, "dispatch namespace"},
		"no token":              {func(p *cloudflare.Params) { p.Token = "" }, "token"},
		"token with a line":     {func(p *cloudflare.Params) { p.Token += "\nX: y" }, "token"},
		"token with a blank":    {func(p *cloudflare.Params) { p.Token = " " }, "token"},
		"plain origin":          {func(p *cloudflare.Params) { p.Origin = "http://api.cloudflare.com" }, "https"},
		"plain look-alike":      {func(p *cloudflare.Params) { p.Origin = "http://localhost.example.com" }, "https"},
		"plain loopback":        {func(p *cloudflare.Params) { p.Origin = "http://127.0.0.1:1" }, ""},
		"plain IPv6 loopback":   {func(p *cloudflare.Params) { p.Origin = "http://[::1]:1" }, ""},
		"other scheme":          {func(p *cloudflare.Params) { p.Origin = "ftp://localhost" }, "origin"},
		"origin with a path":    {func(p *cloudflare.Params) { p.Origin = "https://api.cloudflare.com/client/v4" }, "origin"},
		"origin with userinfo":  {func(p *cloudflare.Params) { p.Origin = "https://u:p@api.cloudflare.com" }, "origin"},
		"no URL":                {func(p *cloudflare.Params) { p.Origin = "https://%" }, "origin"},
		"negative limit":        {func(p *cloudflare.Params) { p.ReadTimeout = -1 }, "negative"},
	} {
		_, err := newProvider("https://cloud.example.com", c.change)
		if (c.says == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: got %v, want %q", title, err, c.says)
		}
		if err != nil && strings.Contains(err.Error(), token) {
			t.Errorf("%s: the message holds the token: %v", title, err)
		}
	}
	_, err := cloudflare.New(cloudflare.Params{})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("all faults at once: %v", err)
	}
	if cloudflare.DefaultOrigin != "https://api.cloudflare.com" {
		t.Error(cloudflare.DefaultOrigin)
	}
}

func TestTokenIsNeverPrinted(t *testing.T) {
	t.Parallel()
	p := cloudflare.Params{AccountID: account, Namespace: namespace, Token: token}
	built, err := cloudflare.New(p)
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "params", p, "provider", built)
	printed := log.String()
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		printed += fmt.Sprintf(format+format+format, p, &p, built)
	}
	if strings.Contains(printed, token) || !strings.Contains(printed, account) {
		t.Errorf("printed %s", printed)
	}
}
