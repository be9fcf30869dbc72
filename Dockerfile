# syntax=docker/dockerfile:1.7
# The images of Edge Workers, one target each: api, deployer, reconciler, edgehost, edgectl.
#
#   docker build --target api --build-arg VERSION="$(git describe --tags --always)" -t REGISTRY/api:TAG .
#
# Bases are pinned by tag; pin them by digest where your registry mirrors them.

# Cross-compiled, so that no platform is emulated.
FROM --platform=$BUILDPLATFORM golang:1.26.8-bookworm AS build
WORKDIR /src
# As in the Makefile: the version is stamped by us.
ENV CGO_ENABLED=0 GOFLAGS=-buildvcs=false
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY cmd cmd
COPY models models
COPY pkg pkg
COPY runtime runtime
COPY transports transports
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    GOOS=$TARGETOS GOARCH=$TARGETARCH go build -trimpath \
    -ldflags "-X github.com/teamsync/edge-workers/pkg/observe.version=$VERSION" -o /out/ ./cmd/...

# The pinned workerd. No script of a package runs: the platform's package holds
# the binary itself.
FROM --platform=$BUILDPLATFORM node:22.12.0-bookworm-slim AS workerd
WORKDIR /tools
COPY tools/npm/package.json tools/npm/package-lock.json ./
ARG TARGETARCH
RUN npm ci --ignore-scripts --no-audit --no-fund --os=linux --cpu="$(echo "$TARGETARCH" | sed s/amd64/x64/)" \
    && install -D -m 0755 node_modules/@cloudflare/workerd-linux-*/bin/workerd /out/workerd \
    && mkdir /out/data

FROM gcr.io/distroless/static-debian12:nonroot AS base
ARG VERSION=unknown
LABEL org.opencontainers.image.vendor="TeamSync" \
      org.opencontainers.image.source="https://github.com/teamsync/edge-workers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
USER 65532:65532

FROM base AS api
LABEL org.opencontainers.image.title="Edge Workers: api"
COPY --from=build /out/api /api
EXPOSE 8080 9090
ENTRYPOINT ["/api"]

FROM base AS deployer
LABEL org.opencontainers.image.title="Edge Workers: deployer"
COPY --from=build /out/deployer /deployer
EXPOSE 9090
ENTRYPOINT ["/deployer"]

FROM base AS reconciler
LABEL org.opencontainers.image.title="Edge Workers: reconciler"
COPY --from=build /out/reconciler /reconciler
EXPOSE 9090
ENTRYPOINT ["/reconciler"]

FROM base AS edgectl
LABEL org.opencontainers.image.title="Edge Workers: edgectl"
COPY --from=build /out/edgectl /edgectl
ENTRYPOINT ["/edgectl"]

# workerd needs glibc. It stands beside the program, where it is looked for first.
FROM debian:12.11-slim AS edgehost
ARG VERSION=unknown
LABEL org.opencontainers.image.title="Edge Workers: edgehost" \
      org.opencontainers.image.vendor="TeamSync" \
      org.opencontainers.image.source="https://github.com/teamsync/edge-workers" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=workerd /out/workerd /usr/local/bin/workerd
COPY --from=build /out/edgehost /usr/local/bin/edgehost
COPY --from=workerd --chown=65532:65532 /out/data /var/lib/edge-host
ENV EDGE_WORKERS_HOST_DATA_DIR=/var/lib/edge-host
USER 65532:65532
VOLUME /var/lib/edge-host
EXPOSE 8787 8788 9090
ENTRYPOINT ["/usr/local/bin/edgehost"]
