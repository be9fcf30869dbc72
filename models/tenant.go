package models

import "gorm.io/gorm"

// Tenant is one department of one company. Every query of a tenant's rows is
// anchored on both ids, which come from the caller's token and never from a
// request's body (D4, S3-16).
type Tenant struct {
	CompanyID    string
	DepartmentID string
}

// Own narrows a query to the tenant's rows.
func (t Tenant) Own(query *gorm.DB) *gorm.DB {
	return query.Where("company_id = ? AND department_id = ?", t.CompanyID, t.DepartmentID)
}
