module github.com/teamsync/edge-workers/tools/gofail

go 1.26.0

tool go.etcd.io/gofail

require go.etcd.io/gofail v0.2.0 // indirect
