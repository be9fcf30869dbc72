// Package models holds the rows, their typed states with the transition table,
// and the create-only schema. The gorm tags are the one source of the schema
// for MySQL, MariaDB and SQLite (S3-05).
//
// Conventions of the schema (S3-06 to S3-09, S3-68): every column that may not
// be null and is neither TEXT nor the key has a literal default in the server,
// so that an older writer can omit it; TEXT may be null and has none; the
// sentinel of an unset string is the empty string. Defaults stand inside
// "type:" because gorm would otherwise leave zero values out of an INSERT.
package models

import "time"

// Company owns departments. The table is the minimum that lets the module
// stand alone; a host platform may own it instead (D3).
type Company struct {
	ID        string    `gorm:"primaryKey;type:varchar(64);not null"`
	Name      string    `gorm:"type:varchar(255) NOT NULL DEFAULT ''"`
	CreatedAt time.Time `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt time.Time `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
}

// TableName is the table's name.
func (Company) TableName() string { return "companies" }

// Department is only ever soft-deleted (S3-73); its rows go with the company's
// hard delete.
type Department struct {
	ID        string     `gorm:"primaryKey;type:varchar(64);not null"`
	CompanyID string     `gorm:"type:varchar(64);not null;default:'';index:ix_department_company"`
	Name      string     `gorm:"type:varchar(255) NOT NULL DEFAULT ''"`
	DeletedAt *time.Time `gorm:"type:datetime(6) NULL"`
	CreatedAt time.Time  `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt time.Time  `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`

	Company *Company `gorm:"foreignKey:CompanyID;constraint:fk_department_company,OnDelete:CASCADE"`
}

// TableName is the table's name.
func (Department) TableName() string { return "departments" }

// Worker is the stable identity of the one Worker that a department owns: one
// row for each department, whatever is submitted or deployed (S3-11).
type Worker struct {
	ID               string       `gorm:"primaryKey;type:varchar(64);not null"`
	CompanyID        string       `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_company_department,priority:1"`
	DepartmentID     string       `gorm:"type:varchar(64);not null;default:'';uniqueIndex:uq_edge_worker_department;index:ix_edge_worker_company_department,priority:2"`
	ScriptName       string       `gorm:"type:varchar(63) NOT NULL DEFAULT '';uniqueIndex:uq_edge_worker_script_name"`
	Status           WorkerStatus `gorm:"type:varchar(16) NOT NULL DEFAULT 'draft';check:ck_edge_worker_status,status IN ('draft','active','paused')"`
	CurrentVersionID string       `gorm:"type:varchar(64) NOT NULL DEFAULT ''"` // no foreign key (S3-72)
	LatestRevision   int64        `gorm:"type:bigint NOT NULL DEFAULT 0"`
	// DeploymentSequence is the last admission_sequence given out (S2-058).
	DeploymentSequence int64 `gorm:"type:bigint NOT NULL DEFAULT 0"`
	// ServingKind and ServingNamespace record where the script is served
	// (D15); both are empty until the first admission.
	ServingKind      string `gorm:"type:varchar(16) NOT NULL DEFAULT ''"`
	ServingNamespace string `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	// MigrationNamespace is where an unfinished move leads; it blocks
	// admission while it is set (S2-048).
	MigrationNamespace string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	CreatedBy          string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	CreatedAt          time.Time `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt          time.Time `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`

	Company    *Company    `gorm:"foreignKey:CompanyID;constraint:fk_edge_worker_company,OnDelete:CASCADE"`
	Department *Department `gorm:"foreignKey:DepartmentID;constraint:fk_edge_worker_department,OnDelete:CASCADE"`
}

// TableName is the table's name.
func (Worker) TableName() string { return "edge_workers" }

// Version is an immutable project and build revision. Only the deployment
// evidence changes after the insert: state, error_* and deployed_at (S2-007).
type Version struct {
	ID           string       `gorm:"primaryKey;type:varchar(64);not null"`
	WorkerID     string       `gorm:"type:varchar(64);not null;default:'';uniqueIndex:uq_edge_worker_version_revision,priority:1;index:ix_edge_worker_version_tenant,priority:3"`
	CompanyID    string       `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_version_tenant,priority:1;index:ix_edge_worker_version_state,priority:1"`
	DepartmentID string       `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_version_tenant,priority:2;index:ix_edge_worker_version_state,priority:2"`
	Revision     int64        `gorm:"type:bigint NOT NULL DEFAULT 0;uniqueIndex:uq_edge_worker_version_revision,priority:2"`
	State        VersionState `gorm:"default:uploading;type:varchar(16) NOT NULL;index:ix_edge_worker_version_state,priority:3;check:ck_edge_worker_version_state,state IN ('uploading','ready','deploy_pending','deploying','deployed','superseded','failed','uncertain')"`

	// The project as it was submitted.
	Language          string  `gorm:"type:varchar(16) NOT NULL DEFAULT 'javascript';check:ck_edge_worker_version_language,language IN ('javascript','typescript')"`
	Entry             string  `gorm:"type:varchar(255) NOT NULL DEFAULT ''"`
	CompatibilityDate string  `gorm:"type:varchar(10) NOT NULL DEFAULT ''"`
	Manifest          *string `gorm:"type:mediumtext NULL"` // canonical JSON

	// The module tuple: what the provider is given (S2-136).
	MainModule string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ModuleType string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	BundleSize int64  `gorm:"type:bigint NOT NULL DEFAULT 0"`

	// The stored objects; both keys end with ArtifactID.
	ArtifactID       string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ProjectSize      int64  `gorm:"type:bigint NOT NULL DEFAULT 0"`
	ProjectObjectKey string `gorm:"type:varchar(255) NOT NULL DEFAULT ''"`
	BundleObjectKey  string `gorm:"type:varchar(255) NOT NULL DEFAULT ''"`

	// The seven digests (S2-137) and what the release is identified by.
	ProjectDigest     string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	BundleDigest      string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ManifestDigest    string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	LockDigest        string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	DependencyDigest  string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	SBOMDigest        string `gorm:"column:sbom_digest;type:varchar(64) NOT NULL DEFAULT ''"`
	StaticDataDigest  string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	RuntimeDigest     string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	BuilderPolicy     string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ReleaseGeneration string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`

	// The two evidence documents; nullable for mixed rollouts only: every
	// ready revision has both (S3-10).
	SBOM         *string `gorm:"column:sbom;type:mediumtext NULL"`
	BuildReceipt *string `gorm:"type:text NULL"`

	// Deployment evidence, the mutable part.
	ErrorCode    string     `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ErrorMessage *string    `gorm:"type:text NULL"`
	DeployedAt   *time.Time `gorm:"type:datetime(6) NULL"`

	CreatedBy string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	CreatedAt time.Time `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt time.Time `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`

	Worker *Worker `gorm:"foreignKey:WorkerID;constraint:fk_edge_worker_version_worker,OnDelete:CASCADE"`
}

// TableName is the table's name.
func (Version) TableName() string { return "edge_worker_versions" }

// Outbox is a durable intent. A deploy row is also the public ticket. It has
// no foreign keys: it outlives what it speaks of (S3-71, S3-78).
type Outbox struct {
	ID        string       `gorm:"primaryKey;type:varchar(64);not null"`
	Operation Operation    `gorm:"type:varchar(32) NOT NULL DEFAULT 'deploy';uniqueIndex:uq_edge_worker_outbox_dedupe,priority:1;index:ix_edge_worker_outbox_worker_operation_sequence,priority:2;check:ck_edge_worker_outbox_operation,operation IN ('deploy','delete','artifact_cleanup','control_audit')"`
	DedupeKey string       `gorm:"type:varchar(255) NOT NULL DEFAULT '';uniqueIndex:uq_edge_worker_outbox_dedupe,priority:2"`
	TicketID  string       `gorm:"type:varchar(64) NOT NULL DEFAULT '';uniqueIndex:uq_edge_worker_outbox_ticket"`
	Status    OutboxStatus `gorm:"type:varchar(16) NOT NULL DEFAULT 'pending';index:ix_edge_worker_outbox_pending,priority:1;index:ix_edge_worker_outbox_tenant,priority:3;check:ck_edge_worker_outbox_status,status IN ('pending','leased','completed','failed','cancelled','uncertain')"`

	CompanyID         string `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_outbox_tenant,priority:1"`
	DepartmentID      string `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_outbox_tenant,priority:2"`
	WorkerID          string `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_outbox_worker_operation_sequence,priority:1"`
	VersionID         string `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	ScriptName        string `gorm:"type:varchar(63) NOT NULL DEFAULT ''"`
	DispatchNamespace string `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	AdmissionSequence int64  `gorm:"type:bigint NOT NULL DEFAULT 0;index:ix_edge_worker_outbox_worker_operation_sequence,priority:3"`

	// Payload is canonical JSON whose leaves are scalars (S3-33).
	Payload *string `gorm:"type:text NULL"`

	// Attempts counts leases that found the version deploy_pending.
	Attempts       int        `gorm:"type:int NOT NULL DEFAULT 0"`
	LeaseOwner     string     `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	LeaseExpiresAt *time.Time `gorm:"type:datetime(6) NULL"`
	// NextAttemptAt has whole seconds: it is a compare-and-set mark (S1-290).
	NextAttemptAt *time.Time `gorm:"type:datetime(6) NULL;index:ix_edge_worker_outbox_pending,priority:2"`

	LastErrorCode string    `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	LastError     *string   `gorm:"type:text NULL"`
	CreatedBy     string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	CreatedAt     time.Time `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt     time.Time `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`

	// ActiveDeploymentWorkerID is generated by the database: the Worker's id
	// while a deployment is live, else NULL. Its unique index is the second of
	// the two guards of single flight (S2-077).
	ActiveDeploymentWorkerID *string `gorm:"->;type:varchar(64) GENERATED ALWAYS AS (CASE WHEN operation = 'deploy' AND status IN ('pending','leased','uncertain') THEN worker_id END) STORED;uniqueIndex:uq_edge_worker_outbox_active_deployment_worker"`
}

// TableName is the table's name.
func (Outbox) TableName() string { return "edge_worker_outbox" }

// MaintenanceState says whether a resync is under way.
type MaintenanceState string

// The maintenance states (S3-53).
const (
	MaintenanceIdle   MaintenanceState = "idle"
	MaintenanceActive MaintenanceState = "active"
)

// Maintenance is the durable resync epoch and backup fence of one on-prem
// scope. On cloud the table exists and is never read (S3-50, S3-51).
type Maintenance struct {
	Scope          string           `gorm:"primaryKey;type:varchar(64);not null"`
	State          MaintenanceState `gorm:"type:varchar(16) NOT NULL DEFAULT 'idle';check:ck_edge_worker_maintenance_state,state IN ('idle','active')"`
	ResyncEpoch    int64            `gorm:"type:bigint NOT NULL DEFAULT 0"`
	FenceID        string           `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	RestorePending bool             `gorm:"type:boolean NOT NULL DEFAULT 0"`
	CreatedAt      time.Time        `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
	UpdatedAt      time.Time        `gorm:"autoUpdateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"`
}

// TableName is the table's name.
func (Maintenance) TableName() string { return "edge_worker_maintenance" }

// AuditLog is one append-only fact. It holds digests, never source, bundles or
// credentials (S3-59), and is never updated or deleted (S3-57). Its key is the
// audit id; nothing else is unique (S3-63).
type AuditLog struct {
	ID           string    `gorm:"primaryKey;type:varchar(64);not null"`
	CompanyID    string    `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_audit_tenant_created,priority:1"`
	DepartmentID string    `gorm:"type:varchar(64);not null;default:'';index:ix_edge_worker_audit_tenant_created,priority:2"`
	ActorType    string    `gorm:"type:varchar(32) NOT NULL DEFAULT ''"`
	ActorID      string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	AuthMethod   string    `gorm:"type:varchar(32) NOT NULL DEFAULT ''"`
	Action       string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	ResourceType string    `gorm:"type:varchar(64) NOT NULL DEFAULT '';index:ix_edge_worker_audit_resource,priority:1"`
	ResourceID   string    `gorm:"type:varchar(64) NOT NULL DEFAULT '';index:ix_edge_worker_audit_resource,priority:2"`
	Result       string    `gorm:"type:varchar(32) NOT NULL DEFAULT ''"`
	ReasonCode   string    `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	Digest       string    `gorm:"type:varchar(64) NOT NULL DEFAULT ''"`
	RequestID    string    `gorm:"type:varchar(128) NOT NULL DEFAULT ''"`
	CreatedAt    time.Time `gorm:"autoCreateTime:false;type:datetime(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6);index:ix_edge_worker_audit_tenant_created,priority:3"`
}

// TableName is the table's name.
func (AuditLog) TableName() string { return "edge_worker_audit_logs" }
