package models

import (
	"fmt"

	"gorm.io/gorm"
)

// Tables lists one model of each table in the order in which their foreign
// keys allow them to be created: the two tenant tables, then the five of S3-01.
func Tables() []any {
	return []any{
		&Company{}, &Department{},
		&Worker{}, &Version{}, &Outbox{}, &AuditLog{}, &Maintenance{},
	}
}

// CreateMissing creates the tables that do not exist yet and changes nothing
// else: it never issues ALTER, and a second run issues no DDL (S3-02, S3-03).
// Several processes may run it at once: losing the race to create a table is
// no error.
func CreateMissing(db *gorm.DB) error {
	for _, table := range Tables() {
		if db.Migrator().HasTable(table) {
			continue
		}
		err := db.Migrator().CreateTable(table)
		if err != nil && !db.Migrator().HasTable(table) {
			return fmt.Errorf("create the table of %T: %w", table, err)
		}
	}
	return nil
}
