package auth_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/teamsync/edge-workers/pkg/auth"
	"github.com/teamsync/edge-workers/pkg/fault"
)

func who(subject, company, department string, roles []auth.Role) auth.Principal {
	return auth.Principal{Subject: subject, CompanyID: company, DepartmentID: department, Roles: roles}
}

func TestPrincipalValidate(t *testing.T) {
	t.Parallel()
	manager := []auth.Role{auth.DepartmentManager}
	cases := map[string]struct {
		principal auth.Principal
		valid     bool
	}{
		"manager":                        {who("user:1", "c", "d", manager), true},
		"member without a role":          {who("user:1", "c", "d", nil), true},
		"member of no department":        {who("user:1", "c", "", nil), true},
		"company admin of no department": {who("user:1", "c", "", []auth.Role{auth.CompanyAdmin}), true},
		"platform admin of no company":   {who("user:1", "", "", []auth.Role{auth.PlatformAdmin}), true},
		"longest id":                     {who("user:1", strings.Repeat("c", 64), "d", manager), true},
		"no subject":                     {who("", "c", "d", manager), false},
		"long subject":                   {who(strings.Repeat("s", 256), "c", "d", manager), false},
		"line break in the subject":      {who("user\n1", "c", "d", manager), false},
		"manager without a department":   {who("user:1", "c", "", manager), false},
		"manager without a company":      {who("user:1", "", "d", manager), false},
		"company admin without one":      {who("user:1", "", "", []auth.Role{auth.CompanyAdmin, auth.PlatformAdmin}), false},
		"member without a company":       {who("user:1", "", "", nil), false},
		"department without a company":   {who("user:1", "", "d", []auth.Role{auth.PlatformAdmin}), false},
		"unknown role":                   {who("user:1", "c", "d", []auth.Role{auth.DepartmentManager, "root"}), false},
		"long company id":                {who("user:1", strings.Repeat("c", 65), "d", manager), false},
		"slash in a company id":          {who("user:1", "a/b", "d", manager), false},
		"NUL in a department id":         {who("user:1", "c", "d\x00", manager), false},
		"line break after an id":         {who("user:1", "c\n", "d", manager), false},
	}
	for name, c := range cases {
		if err := c.principal.Validate(); (err == nil) != c.valid {
			t.Errorf("%s: %v, want valid %v", name, err, c.valid)
		}
	}
}

func TestPrincipalRequire(t *testing.T) {
	t.Parallel()
	principal := auth.Principal{Roles: []auth.Role{auth.CompanyAdmin, auth.PlatformAdmin}}
	if err := principal.Require(auth.CompanyAdmin); err != nil {
		t.Errorf("a held role is refused: %v", err)
	}
	err := principal.Require(auth.DepartmentManager) // no role implies another
	if fault.KindOf(err) != fault.Forbidden {
		t.Errorf("a missing role gives %v", err)
	}
}

func TestPrincipalInContext(t *testing.T) {
	t.Parallel()
	if p, ok := auth.FromContext(context.Background()); ok {
		t.Errorf("an empty context has the principal %+v", p)
	}
	ctx := auth.WithPrincipal(context.Background(), auth.Principal{Subject: "user:1"})
	p, ok := auth.FromContext(ctx)
	if !ok || p.Subject != "user:1" {
		t.Errorf("got %+v, %v", p, ok)
	}
}

func TestErrNotAuthenticatedLeaksNothing(t *testing.T) {
	t.Parallel()
	err := auth.ErrNotAuthenticated.Because(errors.New("signature is invalid"))
	f := fault.As(err)
	if f.Message != "Not authenticated" || f.Code != "" || f.Kind != fault.Unauthenticated {
		t.Errorf("public part is %q %q %q", f.Kind, f.Code, f.Message)
	}
}
