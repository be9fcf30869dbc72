# Edge Workers. `make help` lists the targets.

SHELL       := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# The version is stamped by us: Go's own stamp fails where the clone belongs to
# another user, as it does under sudo.
export GOFLAGS := -buildvcs=false
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)

CACHE := .cache
BIN   := bin

# Two packages at once, as two cores bear; more tests at once in each, since
# most of them wait for a server and not for a processor.
TEST_P        ?= 2
TEST_PARALLEL ?= 4
TEST_TIMEOUT  ?= 9m
PKG           ?= ./...
TEST_FLAGS    := -p $(TEST_P) -parallel $(TEST_PARALLEL) -timeout $(TEST_TIMEOUT)

# The race suite leaves out the packages that run the whole system.
RACE_PKG  ?= ./models/... ./pkg/... ./transports/...
RACE_SKIP ?= /(devkit|setup)$$

# How many deployments each transport gets in the e2e suite.
E2E_DEPLOYMENTS ?= 500

# Where our Go files are; node_modules is not among it.
GO_FILES := $(wildcard *.go cmd models pkg runtime test transports tools/*/*.go)

GOLANGCI := $(CACHE)/bin/golangci-lint

.PHONY: help build tools generate fmt lint test test-plans test-stress test-race test-faults test-s3 tools-sqs test-sqs e2e figures test-chart rules demo dev stack bench simulate ci clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Static, and free of this machine's paths: equal sources give equal binaries.
build: ## Build every command into bin/
	@mkdir -p $(BIN)
	CGO_ENABLED=0 go build -trimpath -ldflags '-X github.com/teamsync/edge-workers/pkg/observe.version=$(VERSION)' -o $(BIN)/ ./cmd/...

# npm runs only when its lock file changed: once installed, no target needs the
# network.
tools: $(CACHE)/npm.stamp ## Install the pinned npm packages (workerd and build tools)

$(CACHE)/npm.stamp: tools/npm/package.json tools/npm/package-lock.json
	@command -v npm >/dev/null || { echo "npm is not installed: install Node.js 20 or later with npm (Debian: sudo apt-get install nodejs npm; macOS: brew install node)" >&2; exit 1; }
	cd tools/npm && npm ci --no-audit --no-fund
	@mkdir -p $(CACHE) && touch $@

# node_modules removed by hand: the stamp no longer says the truth.
ifeq ($(wildcard tools/npm/node_modules),)
.PHONY: $(CACHE)/npm.stamp
endif

generate: tools ## Write the generated files anew
	go generate ./...

fmt: ## Format all Go files
	gofmt -s -w $(GO_FILES)

lint: $(GOLANGCI) ## Check the format, vet and run the linters
	@unformatted=$$(gofmt -s -l $(GO_FILES)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt):"; echo "$$unformatted"; exit 1; fi
	$(GOLANGCI) run --timeout 10m $(PKG)

# The linter is a module of its own, so that its dependencies are not ours.
$(GOLANGCI): tools/lint/go.mod tools/lint/go.sum
	@mkdir -p $(dir $@)
	cd tools/lint && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@

test: tools ## Run all tests on real servers, which are started for it (PKG=./models/... for a part)
	go run ./test/services -- go test $(TEST_FLAGS) $(PKG)

test-race: tools ## Run the packages under the race detector, which takes a few times as long
	@packages=$$(go list $(RACE_PKG) | grep -v -E '$(RACE_SKIP)'); \
	go run ./test/services -- go test -race -p $(TEST_P) -timeout 20m $$packages

test-plans: tools ## Check the claims' plans with a million ended rows in the table
	EDGE_TEST_PLAN_ROWS=1000000 go run ./test/services -- go test -count=1 -v -run ClaimPlan ./pkg/outbox

test-stress: tools ## Let four deployers and two sweeps race for 10,000 deployments, and 20 times 150 random steps change live Workers
	EDGE_TEST_DEPLOYMENTS=10000 go run ./test/services -- go test -count=1 -v -timeout 30m ./test/stress
	EDGE_TEST_CONTROL_CHECKS=20 go run ./test/services -- go test -count=1 -parallel $(TEST_PARALLEL) -timeout 30m ./test/liveplane

# Built first, so that the figures it prints are shown as they are.
test-faults: build ## Break a control plane at every named step and check that nothing is lost or reported wrongly
	@mkdir -p $(CACHE)
	go test -c -tags faults -o $(CACHE)/faults.test ./test/faults
	go run ./test/services -- bash -c 'cd test/faults && exec $(CURDIR)/$(CACHE)/faults.test -test.parallel $(TEST_PARALLEL) -test.timeout 20m'

# MinIO is a test tool under the AGPL: a program of its own, built from its
# published source, started by the tests and spoken to over HTTP. Nothing of it
# is linked into our programs or shipped with them.
MINIO := $(CACHE)/bin/minio

test-s3: $(MINIO) tools ## Test stored objects, 1,000 kills and deployments on a real S3 service, MinIO (its first build takes minutes)
	EDGE_TEST_KILLS=1000 go run ./test/services -minio $(MINIO) -- go test -tags s3 -count=1 -v -timeout 20m ./test/objects
	go run ./test/services -minio $(MINIO) -- go test -tags s3 -count=1 -parallel $(TEST_PARALLEL) -timeout 20m ./test/cloudflow

e2e: $(MINIO) tools tools-sqs ## Run the production programs over each transport, and kill, stop and starve them (E2E_DEPLOYMENTS=100 for fewer)
	EDGE_TEST_DEPLOYMENTS=$(E2E_DEPLOYMENTS) go run ./test/services -minio $(MINIO) -sqs tools/sqs -- go test -tags e2e -count=1 -v -p 1 -timeout 30m ./test/fleet ./test/stack

$(MINIO): tools/minio/go.mod tools/minio/go.sum
	@mkdir -p $(dir $@)
	cd tools/minio && CGO_ENABLED=0 nice go build -trimpath -ldflags '-s -w' -o $(CURDIR)/$@ github.com/minio/minio
	@touch $@

# fauxqs speaks SQS's protocol and needs a newer Node.js than the other tools:
# a package of its own, so that only who tests SQS fetches the 230 MB.
tools-sqs: $(CACHE)/npm-sqs.stamp ## Install the SQS server of the tests, with its Node.js

$(CACHE)/npm-sqs.stamp: tools/sqs/package.json tools/sqs/package-lock.json
	@command -v npm >/dev/null || { echo "npm is not installed: install Node.js with npm (Debian: sudo apt-get install nodejs npm; macOS: brew install node)" >&2; exit 1; }
	cd tools/sqs && npm ci --no-audit --no-fund
	@mkdir -p $(CACHE) && touch $@

ifeq ($(wildcard tools/sqs/node_modules),)
.PHONY: $(CACHE)/npm-sqs.stamp
endif

test-sqs: tools-sqs ## Test the SQS transport on a server that speaks SQS
	go run ./test/services -sqs tools/sqs -- go test -tags sqs -count=1 -parallel $(TEST_PARALLEL) -timeout 10m ./transports/sqs

# A module of its own, so that Helm and Kubernetes are no dependencies of ours.
# Their types take minutes to compile the first time; nothing but Go modules is
# downloaded, and neither a cluster nor Docker is needed.
figures: $(MINIO) tools tools-sqs ## Measure the production programs: size, start, idle memory, and commit to lease over each transport (Linux)
	go run ./test/services -minio $(MINIO) -sqs tools/sqs -- go test -tags e2e -run '^$$' -bench 'Programs|CommitToLease' -benchtime 100x -count=1 -timeout 30m ./test/fleet

test-chart: build $(GOLANGCI) ## Check the Helm chart, the brokers' definitions, the Dockerfile and compose.yaml (its first build takes minutes)
	cd tools/chart && go test -count=1 . && $(CURDIR)/$(GOLANGCI) run --config $(CURDIR)/.golangci.yml --timeout 10m

rules: ## Show which rules of docs/spec no test cites; fail on an unknown one
	go run ./test/rules

demo: build tools ## Run the whole system once from upload to answer
	CGO_ENABLED=0 go run -trimpath ./test/demo # as the commands are built, so that nothing is compiled twice

dev: build tools ## Run the whole system in one process
	$(BIN)/edgectl dev

# Two deployers, or with batch one for each deployment. fauxqs is fetched for sqs
# only.
TRANSPORT ?= pubsub

stack: build tools $(MINIO) $(if $(filter sqs,$(TRANSPORT)),tools-sqs) ## Run the production programs with all their servers on this machine (TRANSPORT=pubsub, sqs, batch or legacy)
	@CGO_ENABLED=0 go build -trimpath -o $(CACHE)/bin/stack ./test/stack
	@exec $(CACHE)/bin/stack -transport $(TRANSPORT)

bench: tools ## Run the benchmarks
	go run ./test/services -- go test -run '^$$' -bench . -benchmem -p 1 -timeout 20m $(PKG)

# SIMULATE='-deployers 30 -tokens 6' runs one system of your own.
simulate: ## Simulate 10,000 deployments an hour for a million departments (SIMULATE=-help for the numbers)
	@CGO_ENABLED=0 go run -trimpath ./test/simulate $(SIMULATE)

ci: ## Run what the continuous integration runs
	bash .ci/run

clean: ## Remove what was built; the npm packages and the tools stay
	rm -rf $(BIN) coverage.out
