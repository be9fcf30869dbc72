package outbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/teamsync/edge-workers/models"
	"github.com/teamsync/edge-workers/pkg/canonical"
)

// DeployPayload is what a deploy row carries: scalars under exactly these keys
// (S2-067). OperationSettingsDigest is null without settings (S2-068).
type DeployPayload struct {
	OutboxID                string  `json:"outbox_id"`
	CompanyID               string  `json:"company_id"`
	DepartmentID            string  `json:"department_id"`
	MessageID               string  `json:"message_id"`
	WorkerID                string  `json:"worker_id"`
	VersionID               string  `json:"version_id"`
	BaseRevision            int64   `json:"base_revision"`
	OperationSettingsDigest *string `json:"operation_settings_digest"`
	// Serving is held by the server in the cloud only: where the Worker is
	// served and from where it is deployed. No route returns it (S2-069).
	Serving *ServingRecord `json:"serving_location,omitempty"`
}

// ServingRecord is the cloud's record of a deployment's location.
type ServingRecord struct {
	Serving      Location `json:"serving"`
	DeployedFrom Location `json:"deployed_from"`
	// LiveVersionID is the Worker's current version at admission, empty for a
	// first deployment: what the deployment takes the place of.
	LiveVersionID string `json:"live_version_id"`
}

// errPayload is the class of every payload that cannot be used.
var errPayload = errors.New("outbox payload is not valid")

func encodePayload(v any) (*string, error) {
	raw, err := canonical.JSON(v)
	if err != nil {
		return nil, err
	}
	text := string(raw)
	return &text, nil
}

func decodePayload(row models.Outbox, into any) error {
	if row.Payload == nil {
		return fmt.Errorf("%w: it is missing", errPayload)
	}
	decoder := json.NewDecoder(bytes.NewReader([]byte(*row.Payload)))
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err != nil {
		return fmt.Errorf("%w: %w", errPayload, err)
	}
	_, err = decoder.Token()
	if !errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: data after its end", errPayload)
	}
	return nil
}

// DecodeDeploy reads the payload of a deploy row and checks that it speaks of
// that very row.
func DecodeDeploy(row models.Outbox) (DeployPayload, error) {
	var p DeployPayload
	err := decodePayload(row, &p)
	if err != nil {
		return DeployPayload{}, err
	}
	same := p.OutboxID == row.ID && p.CompanyID == row.CompanyID && p.DepartmentID == row.DepartmentID &&
		p.WorkerID == row.WorkerID && p.VersionID == row.VersionID
	if !same || p.MessageID == "" {
		return DeployPayload{}, fmt.Errorf("%w: it speaks of another row", errPayload)
	}
	if p.OperationSettingsDigest != nil && !canonical.IsSHA256(*p.OperationSettingsDigest) {
		return DeployPayload{}, fmt.Errorf("%w: operation_settings_digest", errPayload)
	}
	return p, nil
}

// CleanupItem names one stored object of a cleanup intent with the digest of
// its content (S1-141).
type CleanupItem struct {
	Kind      string `json:"kind"`
	ObjectKey string `json:"object_key"`
	Digest    string `json:"digest"`
}

// CleanupPayload has exactly one project and one bundle item (S1-140, D19).
type CleanupPayload struct {
	Items []CleanupItem `json:"items"`
}

// Validate checks the form that S1-140 to S1-143 demand.
func (p CleanupPayload) Validate() error {
	if len(p.Items) != 2 {
		return fmt.Errorf("%w: %d items instead of two", errPayload, len(p.Items))
	}
	kinds := map[string]bool{}
	for _, item := range p.Items {
		if item.Kind != "project" && item.Kind != "bundle" {
			return fmt.Errorf("%w: kind %q", errPayload, item.Kind)
		}
		if item.ObjectKey == "" || !canonical.IsSHA256(item.Digest) {
			return fmt.Errorf("%w: the %s item", errPayload, item.Kind)
		}
		kinds[item.Kind] = true
	}
	if len(kinds) != 2 {
		return fmt.Errorf("%w: two items of one kind", errPayload)
	}
	return nil
}

// Keys lists the object keys of both items.
func (p CleanupPayload) Keys() []string {
	keys := make([]string, len(p.Items))
	for i, item := range p.Items {
		keys[i] = item.ObjectKey
	}
	return keys
}

// Project is the item of the project archive; the zero item when there is none.
func (p CleanupPayload) Project() CleanupItem {
	for _, item := range p.Items {
		if item.Kind == "project" {
			return item
		}
	}
	return CleanupItem{}
}

// DecodeCleanup reads and checks the payload of a cleanup row (S1-140 to
// S1-143).
func DecodeCleanup(row models.Outbox) (CleanupPayload, error) {
	var p CleanupPayload
	err := decodePayload(row, &p)
	if err != nil {
		return CleanupPayload{}, err
	}
	return p, p.Validate()
}
