// Package config turns environment variables into validated, typed settings.
//
// A process reads its environment once, in main, and passes it to Load; nothing
// else in this module reads it. A value that cannot be right stops the start
// with an error that names the variable. There is one exception, asked for by
// the specification: wrong provider settings do not fail Load, so that the API
// can come up and say so (S2-022).
//
// The comments of the fields below are the reference that operators read:
// docs/configuration.md is generated from them.
package config

//go:generate go run ./gen -out ../../docs/configuration.md

// Settings are all settings of the control plane.
type Settings struct {
	Database  Database
	Redis     Redis
	Provider  Provider
	Artifacts Artifacts
	Control   Control
	Auth      Auth
	HTTP      HTTP
	Edge      Edge
	Transport Transport
	PubSub    PubSub
	AWS       AWS
	SQS       SQS
	Batch     Batch
	NPM       NPM
	Log       Log
}

// Database is where all durable state lives. All processes of one environment
// use the same database; two environments never share one.
type Database struct {
	// Where the database is: "sqlite:PATH" for a file, or a MySQL DSN such as
	// user:password@tcp(host:3306)/edge_workers. Needed; no default, because a
	// wrong guess would split the state. SQLite is for one machine: several
	// machines on one file lose data. Session settings (UTC,
	// found rows, time limits) are added by the program and need not be given.
	URL Secret `env:"EDGE_WORKERS_DATABASE_URL"`
}

// Redis holds the fast mirror of tickets, short locks and counters. Nothing in
// it is the only copy of anything.
type Redis struct {
	// Where Redis is: redis://, rediss:// (TLS) or unix://, with the password
	// in it. Needed; no default. Two environments that share one Redis see each
	// other's tickets: give each a database number or a server of its own.
	URL Secret `env:"EDGE_WORKERS_REDIS_URL"`
}

// Provider is what serves Workers. A wrong value does not stop the process: the
// API answers 503 and the recovery sweeps are skipped until it is corrected
// (S2-022, S2-245).
type Provider struct {
	// What serves Workers: cloudflare (Workers for Platforms, the default,
	// S2-001) or onprem (our own edge host). Workers that were deployed under
	// the other value stay where they are and are left alone.
	Name string `env:"EDGE_WORKERS_PROVIDER" envDefault:"cloudflare"`

	// The Cloudflare account that serves Workers: its id, 32 lower-case hex
	// digits. Needed with cloudflare.
	CloudflareAccountID string `env:"EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID"`
	// An API token of that account with the permission Workers Scripts: Edit and
	// no other. Needed with cloudflare. Cloudflare counts calls for each token
	// and blocks one that makes too many for minutes: give each environment its
	// own.
	CloudflareAPIToken Secret `env:"EDGE_WORKERS_CLOUDFLARE_API_TOKEN"`
	// This environment's own dispatch namespace. A Worker's first deployment
	// goes there, and the environment claims work of this namespace (and of the
	// shared ones) only. Needed with cloudflare; two environments never share
	// it. It must not be in trusted mode.
	CloudflareDispatchNamespace string `env:"EDGE_WORKERS_CLOUDFLARE_DISPATCH_NAMESPACE"`
	// Dispatch namespaces that all environments of the account serve, with a
	// comma between them. None by default. Every environment that has one here
	// may deploy every Worker that is recorded there.
	CloudflareSharedNamespaces []string `env:"EDGE_WORKERS_CLOUDFLARE_SHARED_NAMESPACES"`
	// The origin of the dispatcher Worker, at which Workers are commanded and
	// invoked; https, but for an address of this very machine. Needed with
	// cloudflare. It must reach all of the namespaces above.
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

// Artifacts is where submitted archives and built bundles are kept: in R2 with
// cloudflare, in the kit's own service with onprem (S0-01); the other store's
// settings are not looked at. Bucket and key pair are this module's alone, and
// nothing is taken from the application's settings. Missing or wrong ones do not
// stop the process: until they are corrected submissions and downloads of
// sources answer 503, and deployments fail (S0-20, S0-21).
type Artifacts struct {
	// The R2 bucket of this environment, in the account of
	// EDGE_WORKERS_CLOUDFLARE_ACCOUNT_ID. Needed with cloudflare. Two
	// environments never share it, and nothing else writes to it. The endpoint
	// is https://ACCOUNT.r2.cloudflarestorage.com and cannot be chosen.
	R2Bucket string `env:"EDGE_WORKERS_R2_BUCKET"`
	// The id of an R2 access key with the permission Object Read & Write of that
	// bucket and no other. Needed with cloudflare.
	R2AccessKeyID Secret `env:"EDGE_WORKERS_R2_ACCESS_KEY_ID"`
	// The secret of that access key. Needed with cloudflare.
	R2SecretAccessKey Secret `env:"EDGE_WORKERS_R2_SECRET_ACCESS_KEY"`
	// The kind of the application's object storage. With cloudflare it must be
	// r2; with onprem it is not looked at.
	S3Provider string `env:"S3_PROVIDER"`
	// The application's object storage. May be left out; with cloudflare a value
	// must be exactly the endpoint above, without a slash at its end. With onprem
	// it is not looked at.
	S3EndpointURL string `env:"S3_ENDPOINT_URL"`

	// The origin of the kit's artifact service. Needed with onprem, where it must
	// be the one that was fixed when the program was built:
	// http://edge-workers-artifacts:9000, unless the kit's makers changed it.
	EndpointURL string `env:"EDGE_WORKERS_ARTIFACTS_ENDPOINT_URL"`
	// The bucket of the artifact service. Needed with onprem.
	Bucket string `env:"EDGE_WORKERS_ARTIFACTS_BUCKET"`
	// The id of an access key of the artifact service that may read, write and
	// delete objects of that bucket. Needed with onprem.
	AccessKeyID Secret `env:"EDGE_WORKERS_ARTIFACTS_ACCESS_KEY_ID"`
	// The secret of that access key. Needed with onprem.
	SecretAccessKey Secret `env:"EDGE_WORKERS_ARTIFACTS_SECRET_ACCESS_KEY"`
}

// Control is the key with which commands and invocations are signed. Its public
// half is compiled into every bundle.
type Control struct {
	// A PEM file with an Ed25519 private key (PKCS #8), mode 0600; 0640 or less
	// when root owns it and the process is not root, as with a Kubernetes Secret.
	// Needed; all processes of an environment use the same key. A key that was
	// not announced (below) before a bundle was built is refused by that bundle:
	// the Worker must be deployed again before it can be commanded.
	SigningKeyFile string `env:"EDGE_WORKERS_CONTROL_SIGNING_KEY_FILE"`
	// The public key that comes next, base64 of its 32 bytes; compiled into
	// bundles beside the current one. Give it, deploy all Workers again, then
	// switch the signing key. May be left out.
	NextPublicKey string `env:"EDGE_WORKERS_CONTROL_NEXT_PUBLIC_KEY"`
}

// Auth is how callers of the API prove who they are. Exactly one of the two key
// sources is needed.
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

// HTTP is where the control plane listens.
type HTTP struct {
	// The address of the API and the gateway.
	ListenAddr string `env:"EDGE_WORKERS_LISTEN_ADDR" envDefault:":8080"`
	// The address of /healthz, /readyz and /metrics. It is another port because
	// it must not be reachable from outside.
	MetricsAddr string `env:"EDGE_WORKERS_METRICS_ADDR" envDefault:":9090"`
	// What this api serves: management, gateway, or both with a comma between
	// them. Both by default; separate processes let the gateway scale by
	// itself.
	Roles []string `env:"EDGE_WORKERS_ROLES" envDefault:"management,gateway"`
}

// Edge is what stands in front of the gateway. It decides which address a
// Worker's allow list is compared with, and on whose account failed API keys
// are put. Both are needed or neither.
type Edge struct {
	// The address ranges of the proxies that requests come through, with commas
	// between them, such as 10.1.0.0/16. None by default: the client is then
	// whoever opened the connection. Behind a proxy that is the proxy itself:
	// allow lists shut everyone out, and all callers share one count of failed
	// keys. List only machines that set the header below by themselves: whoever
	// connects from such an address may claim any other.
	TrustedProxies []string `env:"EDGE_WORKERS_TRUSTED_PROXIES"`
	// The header in which those proxies name the client, such as
	// CF-Connecting-IP, X-Real-IP or X-Forwarded-For. None by default. Of
	// several addresses the last that is no trusted proxy counts, because what
	// stands before it may be the client's own words. A trusted proxy that
	// sends none, or something else than addresses, leaves the call without an
	// address, which is outside of every allow list.
	ClientAddressHeader string `env:"EDGE_WORKERS_CLIENT_ADDRESS_HEADER"`
}

// Transport is how deployments reach the process that does them. A message is a
// hint: the durable row is in the database, and a lost message is sent again.
// Two environments never share a queue (S1-023).
type Transport struct {
	// How: legacy, the default (S1-250), which runs jobs and sweeps in the api's
	// own process, so that one process is a whole control plane; or pubsub, sqs
	// or batch, with which the api only publishes, deployer processes do the
	// deployments, and reconciler processes run the sweeps. All processes of an
	// environment have the same value.
	Type string `env:"DEFAULT_BACKGROUND_WORKER_TYPE" envDefault:"legacy"`
	// For how many seconds a message in work is kept from other deployers
	// (S1-255): 60 to 43200. A longer deployment goes on, beside a second
	// delivery, which its lease holds off.
	MaxLease string `env:"PUBSUB_MAX_LEASE_SECONDS" envDefault:"3300"`
	// For how many seconds a deployer that was told to stop lets the deployment
	// in flight go on (S1-256): 1 to 3540, which must end before the 3600 s of
	// grace after which it is killed (S1-257). It holds for sqs and batch too.
	Drain string `env:"PUBSUB_DRAIN_TIMEOUT_SECONDS" envDefault:"3300"`
}

// PubSub is Google Cloud Pub/Sub. Processes sign in with the application's default
// credentials: workload identity, or a key file.
type PubSub struct {
	// The Google Cloud project of topic and subscription. Needed with pubsub.
	Project string `env:"EDGE_WORKERS_PUBSUB_PROJECT"`
	// The topic's id: where api and reconciler publish. Needed by them with
	// pubsub.
	Topic string `env:"EDGE_WORKERS_PUBSUB_TOPIC"`
	// The id of the topic's one subscription: what deployers take from. Needed
	// by them with pubsub. It has a dead-letter topic.
	Subscription string `env:"EDGE_WORKERS_PUBSUB_SUBSCRIPTION"`
	// The host:port of an emulator, which is spoken to without TLS and
	// credentials. Left out in production.
	Endpoint string `env:"EDGE_WORKERS_PUBSUB_ENDPOINT"`
}

// AWS is what SQS and Batch have in common. Processes sign in with the SDK's
// standard chain: a role of the pod, the job or the machine, or AWS_ACCESS_KEY_ID and
// AWS_SECRET_ACCESS_KEY.
type AWS struct {
	// The region. Needed with sqs and batch.
	Region string `env:"EDGE_WORKERS_AWS_REGION"`
	// The origin of an emulator. Left out in production.
	Endpoint string `env:"EDGE_WORKERS_AWS_ENDPOINT"`
}

// SQS is Amazon SQS.
type SQS struct {
	// The queue's URL. Needed with sqs. A standard queue with a redrive policy.
	QueueURL string `env:"EDGE_WORKERS_SQS_QUEUE_URL"`
}

// Batch is AWS Batch, where each deployment is a job of its own.
type Batch struct {
	// The job queue's name or ARN. Needed by api and reconciler with batch.
	JobQueue string `env:"EDGE_WORKERS_BATCH_JOB_QUEUE"`
	// The job definition's name, name:revision or ARN. Its command runs one
	// deployment. Needed by api and reconciler with batch.
	JobDefinition string `env:"EDGE_WORKERS_BATCH_JOB_DEFINITION"`
	// Set by Batch itself in each job: the job's id. The second attempt of a job
	// may take over what its first one left (S1-065).
	JobID string `env:"AWS_BATCH_JOB_ID"`
	// Set by Batch itself: which attempt of the job runs, from 1 on.
	JobAttempt string `env:"AWS_BATCH_JOB_ATTEMPT"`
}

// NPM is where the npm packages of projects come from. Only packages of a
// project's lock file are fetched, and only what matches their sha512 is used.
type NPM struct {
	// The registry: https, or http for one inside the company's own network.
	// Lock files may name npm's public registry or this one; packages come from
	// here alone, as tarballs at /NAME/-/NAME-VERSION.tgz below it, without
	// credentials. A proxy is taken from HTTPS_PROXY, HTTP_PROXY and NO_PROXY.
	Registry string `env:"EDGE_WORKERS_NPM_REGISTRY" envDefault:"https://registry.npmjs.org"`
	// A folder for fetched packages, 1 GiB at most; it is made if it is missing.
	// Several processes may share it. Left out, packages are kept in memory
	// only, and each process fetches them anew after its start.
	CacheDir string `env:"EDGE_WORKERS_NPM_CACHE_DIR"`
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
	// control plane has in EDGE_WORKERS_EDGE_HOST_API_TOKEN. Needed.
	APIToken Secret `env:"EDGE_WORKERS_HOST_API_TOKEN"`
	// The address of the script API. Only the control plane needs to reach it.
	APIAddr string `env:"EDGE_WORKERS_HOST_API_ADDR" envDefault:":8787"`
	// The address at which Workers are invoked and commanded. Only the control
	// plane needs to reach it.
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
