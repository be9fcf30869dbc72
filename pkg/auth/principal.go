// Package auth turns a bearer token into a principal: who calls, for which
// company and department, in which roles (D4).
package auth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"github.com/teamsync/edge-workers/pkg/fault"
)

// Role is what a principal may do. The vocabulary is closed: a token that
// names any other role is refused.
type Role string

// The roles.
const (
	DepartmentManager Role = "department_manager" // manages its department's Worker
	CompanyAdmin      Role = "company_admin"      // repairs and audits all departments of its company
	PlatformAdmin     Role = "platform_admin"     // provisions and deletes companies and departments
)

// Roles gives every role.
func Roles() []Role { return []Role{DepartmentManager, CompanyAdmin, PlatformAdmin} }

// Valid reports whether r is one of the roles.
func (r Role) Valid() bool { return slices.Contains(Roles(), r) }

// maxSubjectLength is in bytes; it is the width of the columns that record
// who did something.
const maxSubjectLength = 255

var idForm = regexp.MustCompile(`\A[A-Za-z0-9_-]{1,64}\z`)

// ValidID reports whether id has the form of a company's or department's id:
// 1 to 64 letters, digits, '_' or '-'.
func ValidID(id string) bool { return idForm.MatchString(id) }

// Principal is a verified caller. The ids come from the token and from nowhere
// else: every query is anchored on them. A principal without roles is an
// ordinary member of its company.
type Principal struct {
	Subject      string
	CompanyID    string
	DepartmentID string // empty for a caller that is not of one department
	Roles        []Role
}

// Has reports whether the principal holds the role. No role implies another.
func (p Principal) Has(role Role) bool { return slices.Contains(p.Roles, role) }

// Require fails with a 403 fault unless the principal holds the role.
func (p Principal) Require(role Role) error {
	if p.Has(role) {
		return nil
	}
	return fault.New(fault.Forbidden, "Not enough permissions").Because(fmt.Errorf("role %s is missing", role))
}

// Validate checks the principal's own rules: a subject, well-formed ids, known
// roles, and the ids that each role needs. Only a platform admin may have no
// company.
func (p Principal) Validate() error {
	if p.Subject == "" || len(p.Subject) > maxSubjectLength {
		return fmt.Errorf("subject is missing or longer than %d bytes", maxSubjectLength)
	}
	if strings.ContainsFunc(p.Subject, unicode.IsControl) {
		return errors.New("subject holds a control character")
	}
	for i, role := range p.Roles {
		if !role.Valid() {
			return fmt.Errorf("role %d of the token is unknown", i)
		}
	}
	return p.validateIDs()
}

func (p Principal) validateIDs() error {
	switch {
	case p.CompanyID != "" && !ValidID(p.CompanyID):
		return errors.New("company_id is not well-formed")
	case p.DepartmentID != "" && !ValidID(p.DepartmentID):
		return errors.New("department_id is not well-formed")
	case p.CompanyID == "" && p.DepartmentID != "":
		return errors.New("department_id without company_id")
	case p.CompanyID == "" && (p.Has(CompanyAdmin) || !p.Has(PlatformAdmin)):
		return errors.New("company_id is missing")
	case p.DepartmentID == "" && p.Has(DepartmentManager):
		return errors.New("department_id is missing")
	}
	return nil
}

type contextKey struct{}

// WithPrincipal returns a context that carries the principal.
func WithPrincipal(ctx context.Context, p Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// FromContext gives the principal of a context; the second value is false for a context of
// an unauthenticated request.
func FromContext(ctx context.Context) (Principal, bool) {
	p, ok := ctx.Value(contextKey{}).(Principal)
	return p, ok
}
