// Package chart holds the tests of what the product is installed with: the Helm
// chart, the definitions of brokers, the images and the compose file. It is a
// module of its own, so that Helm, Kubernetes and Docker's parsers are no
// dependencies of the product. Nothing here talks to a cluster or to Docker.
package chart
