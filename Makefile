SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --warn-undefined-variables --no-builtin-rules

# Tools, each of one version: what passes here passes everywhere.
GOLANGCI_VERSION := v2.15.0

# To be set on the command line.
TESTFLAGS ?=
FUZZTIME ?= 10s
STRESSCOUNT ?= 50
COVERPROFILE ?= cover.out

# The version is part of the name, so that a new one is installed and an old one is not taken for it.
BIN := $(CURDIR)/.bin
GOLANGCI := $(BIN)/golangci-lint-$(GOLANGCI_VERSION)

# The library, and the modules that keep their dependencies out of its go.mod.
MODULES := . $(patsubst %/go.mod,%,$(wildcard */go.mod))

.PHONY: help
help: ## Show this help
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-8s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: demo
demo: ## Watch workers contend for locks while masters fail (about 20 s)
	@go run ./cmd/redlock demo

.PHONY: test
test: ## Run all tests with the race detector, in random order (TESTFLAGS='-run Mutex')
	@go test -race -shuffle=on $(TESTFLAGS) ./...

# -short leaves out the tests on real Redis servers: they take their time, and repetition finds little in them. What
# remains are the pure parts and the simulated nodes, where a rare order of events can hide.
.PHONY: stress
stress: ## Run the tests 50 times, less those on real servers (STRESSCOUNT, TESTFLAGS)
	@go test -race -shuffle=on -short -count=$(STRESSCOUNT) $(TESTFLAGS) ./...

.PHONY: lint
lint: $(GOLANGCI) ## Run golangci-lint, and check that every go.mod is tidy
	@$(GOLANGCI) config verify
	$(GOLANGCI) run
	for module in $(MODULES); do
		echo "go mod tidy -diff ($$module)"
		(cd "$$module" && go mod tidy -diff)
	done

$(GOLANGCI):
	@GOBIN=$(BIN) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)
	mv $(BIN)/golangci-lint $@

.PHONY: bench
bench: ## Compare speed with other libraries (module bench/)
	@cd bench && go run .

# go test fuzzes one target at a time, so every package is first asked for its targets.
#
# Up to Go 1.26 a run that has found nothing may still fail, with a bare "context deadline exceeded", in the moment
# when its time is up (go.dev/issue/75804). Such a run is repeated, at most twice; a failing input always counts.
# Minimizing every input that is merely interesting could take up most of a short run, hence its limit.
.PHONY: fuzz
fuzz: ## Fuzz every target for FUZZTIME (10s)
	@targets=$$(go test -list '^Fuzz' ./... | awk '
		/^Fuzz/ { names[n++] = $$1 }
		/^ok/   { for (i = 0; i < n; i++) print $$2, names[i]; n = 0 }')
	[ -n "$$targets" ] || { echo 'no fuzz targets' >&2; exit 1; }
	while read -r package target; do
		echo "fuzz $$target ($$package)"
		for try in 1 2 3; do
			out=$$(go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1s \
				"$$package" 2>&1 </dev/null) && break
			if [[ $$try = 3 || $$out != *'context deadline exceeded'* || $$out = *'Failing input'* ]]; then
				echo "$$out"
				exit 1
			fi
		done
		tail -n 1 <<<"$$out"
	done <<<"$$targets"

.PHONY: cover
cover: ## Run all tests and print the coverage of the whole module (COVERPROFILE, TESTFLAGS)
	@go test -covermode=atomic -coverpkg=./... -coverprofile=$(COVERPROFILE) $(TESTFLAGS) ./...
	go tool cover -func=$(COVERPROFILE) | tail -n 1
