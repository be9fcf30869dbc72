// Package config turns environment variables into validated, typed settings.
//
// A process reads its environment once, in main, and passes it to Load; nothing
// else in this module reads it. A value that cannot be right stops the start
// with an error that names the variable. There are two exceptions, both asked
// for by the specification: wrong provider settings and an unconfigured
// artifact store must leave the API up, so that it can say so (S2-022, S0-20).
//
// The comments of the fields below are the reference that operators read:
// docs/configuration.md is generated from them.
package config

//go:generate go run ./gen -out ../../docs/configuration.md

// Settings are all settings of the api, deployer and reconciler.
type Settings struct {
	Database  Database
	Redis     Redis
	Provider  Provider
	Artifacts Artifacts
	Evidence  Evidence
	Control   Control
	Auth      Auth
	HTTP      HTTP
	Transport Transport
	Log       Log
}

// Database is where all durable state lives. All processes of one environment
// use the same database; two environments never share one.
type Database struct {
	// Where the database is: "sqlite:PATH" for a file, or a MySQL DSN such as
	// user:password@tcp(host:3306)/edge_workers. Needed by every process; no
	// default, because a wrong guess would split the state. SQLite is for one
	// machine: several machines on one file lose data. Session settings (UTC,
	// found rows, time limits) are added by the program and need not be given.
	URL Secret `env:"EDGE_WORKERS_DATABASE_URL"`
}

// Redis holds the fast mirror of tickets, short locks and counters. Nothing in
// it is the only copy of anything.
type Redis struct {
	// Where Redis is: redis://, rediss:// (TLS) or unix://, with the password
	// in it. Needed by every process; no default. Two environments that share
	// one Redis see each other's tickets: give each a database number or a
	// server of its own.
	URL Secret `env:"EDGE_WORKERS_REDIS_URL"`
}

// Provider is what serves Workers. A wrong value does not stop the process: the
// API answers 503 and the recovery sweeps are skipped until it is corrected
// (S2-022, S2-245).
type Provider struct {
	// What serves Workers: cloudflare or onprem. The default is cloudflare
	// (S2-001). It also selects the artifact store. Workers that were deployed
	// under the other value stay where they are and are left alone.
	Name string `env:"EDGE_WORKERS_PROVIDER" envDefault:"cloudflare"`

	// The Cloudflare account that holds the dispatch namespace and, in R2, the
	// artifact bucket. Needed with cloudflare; the artifact endpoint must
	// belong to the same account (S0-09).
	CloudflareAccountID string `env:"EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"`
	// An API token that may edit Workers scripts of that account, and nothing
	// else. Needed with cloudflare.
	CloudflareAPIToken Secret `env:"EDGE_WORKERS_CLOUDFLARE_API_TOKEN"`
	// The dispatch namespace of this environment: where first deployments go
	// (S1-030). Needed with cloudflare. A changed value moves no Worker; those
	// recorded in the old namespace are no longer claimed by this environment.
	CloudflareDispatchNamespace string `env:"EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"`
	// The https origin of the dispatcher Worker, through which Workers are
	// invoked and commanded. Needed with cloudflare.
	CloudflareGatewayURL string `env:"EDGE_WORKERS_CLOUDFLARE_GATEWAY_URL"`

	// The origin of the edge host's script API. Needed with onprem. http is
	// accepted, because the host is reached inside the kit's own network.
	EdgeHostURL string `env:"EDGE_WORKERS_EDGE_HOST_URL"`
	// The bearer token of the script API, at least 16 characters; the edge
	// host is started with the same one. Needed with onprem.
	EdgeHostAPIToken Secret `env:"EDGE_WORKERS_EDGE_HOST_API_TOKEN"`
	// The origin at which the edge host runs Workers. Needed with onprem.
	EdgeHostDispatchURL string `env:"EDGE_WORKERS_EDGE_HOST_DISPATCH_URL"`
	// A name of the edge host that never changes, its address included: the
	// recorded namespace of its Workers is derived from it. Needed with
	// onprem. Under a changed identity all its Workers look like another
	// host's and are no longer claimed.
	EdgeHostIdentity string `env:"EDGE_WORKERS_EDGE_HOST_IDENTITY"`
}

// Artifacts is the store of submitted projects and built bundles. The selected
// provider decides which half is used (S0-01); while that half is incomplete,
// submissions and downloads answer 503 and everything else works (S0-20,
// S0-21). The application's own bucket and keys are never used (S0-06).
type Artifacts struct {
	// The R2 bucket for artifacts alone. Needed with cloudflare (S0-04).
	R2Bucket string `env:"EDGE_WORKERS_R2_BUCKET"`
	// The R2 key id, for that bucket alone. Needed with cloudflare (S0-05).
	R2AccessKeyID string `env:"EDGE_WORKERS_R2_ACCESS_KEY_ID"`
	// The R2 secret key that belongs to the key id. Needed with cloudflare.
	R2SecretAccessKey Secret `env:"EDGE_WORKERS_R2_SECRET_ACCESS_KEY"`
	// The kind of S3 service: must be r2 with cloudflare (S0-08). Not read
	// with onprem.
	S3Provider string `env:"S3_PROVIDER"`
	// May be left out. When set with cloudflare it must be exactly
	// https://ACCOUNT.r2.cloudflarestorage.com, with the account id above and
	// no slash at the end (S0-11). Not read with onprem.
	S3EndpointURL string `env:"S3_ENDPOINT_URL"`

	// The artifact service of the on-prem kit: must be the kit's fixed origin
	// (S0-16). Needed with onprem, as are the next three.
	EndpointURL string `env:"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"`
	// The bucket in the kit's artifact service.
	Bucket string `env:"EDGE_WORKERS_ARTIFACTS_BUCKET"`
	// The key id for that bucket.
	AccessKeyID string `env:"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID"`
	// The secret key that belongs to the key id.
	SecretAccessKey Secret `env:"EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY"`
}

// Evidence is the immutable store of deployment logs. It is off until endpoint,
// bucket and encryption are all given; some of them without the others stop the
// start, because half a configuration is a mistake. Without it deployments work
// and their logs are not kept.
type Evidence struct {
	// The https origin of an S3 service with conditional writes; checked when
	// the process starts.
	EndpointURL string `env:"EDGE_WORKERS_EVIDENCE_ENDPOINT_URL"`
	// The bucket, used for nothing else: its rules forbid overwriting.
	Bucket string `env:"EDGE_WORKERS_EVIDENCE_BUCKET"`
	// The region that requests are signed for. The default suits R2; AWS needs
	// the bucket's own.
	Region string `env:"EDGE_WORKERS_EVIDENCE_REGION" envDefault:"auto"`
	// How objects are encrypted at rest: AES256 (SSE-S3), aws:kms (SSE-KMS) or
	// r2_managed (only for R2, which takes no encryption headers). No default:
	// the choice is made knowingly (S4-57).
	Encryption string `env:"EDGE_WORKERS_EVIDENCE_ENCRYPTION"`
	// The KMS key. Needed with aws:kms and refused otherwise (S4-58).
	KMSKeyID string `env:"EDGE_WORKERS_EVIDENCE_KMS_KEY_ID"`
	// The 12-digit AWS account that must own the bucket; guards against a
	// bucket of the same name elsewhere. May be left out; refused with
	// r2_managed (S4-60).
	ExpectedBucketOwner string `env:"EDGE_WORKERS_EVIDENCE_EXPECTED_BUCKET_OWNER"`
	// The key id for that bucket. Needed when the store is on.
	AccessKeyID string `env:"EDGE_WORKERS_EVIDENCE_ACCESS_KEY_ID"`
	// The secret key that belongs to the key id. Needed when the store is on.
	SecretAccessKey Secret `env:"EDGE_WORKERS_EVIDENCE_SECRET_ACCESS_KEY"`
}

// Control is the key with which commands and invocations are signed. Its public
// half is compiled into every bundle.
type Control struct {
	// A PEM file with an Ed25519 private key (PKCS #8). Needed by every
	// process; all of them use the same key. A key that was never announced
	// (below) before a bundle was built is refused by that bundle: the Worker
	// must be deployed again before it can be commanded.
	SigningKeyFile string `env:"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"`
	// The public key that comes next, base64 of its 32 bytes; compiled into
	// bundles beside the current one. Give it, deploy all Workers again, then
	// switch the signing key. May be left out.
	NextPublicKey string `env:"EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY"`
}

// Auth is how callers of the API prove who they are. Only the api needs it, and
// it needs exactly one of the two key sources.
type Auth struct {
	// The identity provider's key set. https, but for an address of this very
	// machine. Excludes the local key file.
	JWKSURL string `env:"EDGE_WORKERS_AUTH_JWKS_URL"`
	// A PEM file with the Ed25519 private key that developer tokens are made
	// with. For development: whoever reads the file is every user. Excludes
	// the key set.
	LocalKeyFile string `env:"EDGE_WORKERS_AUTH_LOCAL_KEY_FILE"`
	// The exact iss of accepted tokens. Needed with a key set, where a missing
	// check would accept the tokens of other applications; with a local key it
	// has a fixed default.
	Issuer string `env:"EDGE_WORKERS_AUTH_ISSUER"`
	// An entry that aud of accepted tokens must have. Needed as the issuer is.
	Audience string `env:"EDGE_WORKERS_AUTH_AUDIENCE"`
}

// HTTP is where a process listens.
type HTTP struct {
	// The address of the API and the gateway. Only the api listens there.
	ListenAddr string `env:"EDGE_WORKERS_LISTEN_ADDR" envDefault:":8080"`
	// The address of /healthz, /readyz and /metrics, in every process. It is
	// another port because it must not be reachable from outside.
	MetricsAddr string `env:"EDGE_WORKERS_METRICS_ADDR" envDefault:":9090"`
	// What this api serves: management, gateway, or both with a comma between
	// them. Both by default; separate processes let the gateway scale by
	// itself.
	Roles []string `env:"EDGE_WORKERS_ROLES" envDefault:"management,gateway"`
}

// Transport is how deployments reach the process that does them. A message is a
// hint: the durable row is in the database, and a lost message is sent again.
type Transport struct {
	// How: legacy (in the api's own process), pubsub, sqs or batch. The
	// default is legacy (S1-250): one binary alone is then a whole system, and
	// there is nothing for a deployer to do. All processes of an environment
	// use the same value; no two environments share a queue (S1-023).
	Type string `env:"DEFAULT_BACKGROUND_WORKER_TYPE" envDefault:"legacy"`

	// The Google Cloud project of the topic. Needed with pubsub.
	PubSubProject string `env:"EDGE_WORKERS_PUBSUB_PROJECT"`
	// The topic that is published to. Needed with pubsub.
	PubSubTopic string `env:"EDGE_WORKERS_PUBSUB_TOPIC"`
	// The subscription that the deployer reads, with a dead-letter topic.
	// Needed with pubsub.
	PubSubSubscription string `env:"EDGE_WORKERS_PUBSUB_SUBSCRIPTION"`
	// For how many seconds the lease of one message is extended. The default
	// of 3300 lies below the shutdown grace of 3600, so that a task that is
	// being drained keeps its message (S1-255).
	PubSubMaxLeaseSeconds int `env:"PUBSUB_MAX_LEASE_SECONDS" envDefault:"3300"`
	// For how many seconds a stopping deployer waits for its task. The default
	// of 3300 leaves 300 s of the shutdown grace for the rest; with a value
	// near the grace a task may be killed while it settles (S1-256).
	PubSubDrainTimeoutSeconds int `env:"PUBSUB_DRAIN_TIMEOUT_SECONDS" envDefault:"3300"`

	// The URL of the queue. Needed with sqs.
	SQSQueueURL string `env:"EDGE_WORKERS_SQS_QUEUE_URL"`
	// The AWS region of the queue or the job queue. Needed with sqs and batch.
	AWSRegion string `env:"AWS_REGION"`
	// The job queue. Needed with batch.
	BatchJobQueue string `env:"EDGE_WORKERS_BATCH_JOB_QUEUE"`
	// The job definition, which runs the deployer. Needed with batch.
	BatchJobDefinition string `env:"EDGE_WORKERS_BATCH_JOB_DEFINITION"`
	// Set by AWS Batch in a running job, never by hand: the second attempt of
	// the same job may take up its own lease (S1-065).
	BatchJobID string `env:"AWS_BATCH_JOB_ID"`
}

// Host is the on-prem edge host, which runs Workers and takes new releases. It
// is a process of its own and needs none of the other groups but the log.
type Host struct {
	// The folder of all its state: scripts, and the storage of every Worker.
	// Needed; no default, because an empty folder looks like a host that lost
	// everything. On a local file system, owned by one host at a time.
	DataDir string `env:"EDGE_WORKERS_HOST_DATA_DIR"`
	// The workerd binary. Left out, it is looked for in PATH and where npm put
	// it. Its version is pinned: another one may read storage differently.
	Workerd string `env:"EDGE_WORKERS_HOST_WORKERD"`
	// The bearer token of the script API, at least 16 characters: what the
	// other processes have in EDGE_WORKERS_EDGE_HOST_API_TOKEN. Needed.
	APIToken Secret `env:"EDGE_WORKERS_HOST_API_TOKEN"`
	// The address of the script API. Only the deployers, the reconcilers and
	// the api need to reach it.
	APIAddr string `env:"EDGE_WORKERS_HOST_API_ADDR" envDefault:":8787"`
	// The address at which Workers are invoked and commanded. Only the api and
	// the reconcilers need to reach it.
	DispatchAddr string `env:"EDGE_WORKERS_HOST_DISPATCH_ADDR" envDefault:":8788"`
	// The address of /healthz, /readyz and /metrics.
	MetricsAddr string `env:"EDGE_WORKERS_HOST_METRICS_ADDR" envDefault:":9090"`
	// Private address ranges that Workers may reach, with commas between them,
	// such as 10.1.0.0/16. None by default: Workers reach public addresses
	// only. Every Worker of every company may reach what is listed here.
	EgressAllow []string `env:"EDGE_WORKERS_HOST_EGRESS_ALLOW"`
	// on or off: whether each Worker runs under a uid of its own in an empty
	// network namespace. On by default, and the start is refused where the
	// host lacks the rights (Linux, root). off leaves workerd's own sandbox as
	// the only wall between companies: for one company's host, or a laptop.
	Isolation string `env:"EDGE_WORKERS_HOST_ISOLATION" envDefault:"on"`
}

// Log is what a process writes to its standard error, as JSON lines.
type Log struct {
	// The least level that is written: debug, info, warn or error. Secrets,
	// sources and bundles are written at no level.
	Level string `env:"EDGE_WORKERS_LOG_LEVEL" envDefault:"info"`
}
