package live

import (
	"context"
	"encoding/json"

	"github.com/teamsync/edge-workers/pkg/settings"
)

// RuntimeConfig reads the configuration that handlers see as ctx.config.
func (d *Desk) RuntimeConfig(ctx context.Context, by By) (settings.Config, error) {
	of, err := d.releaseOf(ctx, by.Tenant, everyRelease)
	if err != nil {
		return settings.Config{}, err
	}
	result, err := d.read(ctx, of, by, "runtime_config.get")
	if err != nil {
		return settings.Config{}, err
	}
	var wrapper struct {
		Config json.RawMessage `json:"config"`
	}
	err = json.Unmarshal(result, &wrapper)
	if err != nil {
		return settings.Config{}, unusable(err)
	}
	return readConfig(wrapper.Config)
}

// ReplaceRuntimeConfig puts the text of a JSON object in place of what there
// is; at most settings.MaxValueJSON bytes, in canonical form too.
func (d *Desk) ReplaceRuntimeConfig(ctx context.Context, by By, base int64, value json.RawMessage) (settings.Config, error) {
	return d.changeConfig(ctx, by, settings.RuntimeConfigReplace, map[string]any{"baseRevision": base, "valueJson": string(value)})
}

// DeleteRuntimeConfig empties the configuration.
func (d *Desk) DeleteRuntimeConfig(ctx context.Context, by By, base int64) (settings.Config, error) {
	return d.changeConfig(ctx, by, settings.RuntimeConfigDelete, map[string]any{"baseRevision": base})
}

func (d *Desk) changeConfig(ctx context.Context, by By, operation settings.Operation, payload map[string]any) (settings.Config, error) {
	command, err := parse(operation, payload)
	if err != nil {
		return settings.Config{}, err
	}
	result, err := d.changeLive(ctx, by, command)
	if err != nil {
		return settings.Config{}, err
	}
	return readConfig(readChange(result).Current)
}

func readConfig(raw json.RawMessage) (settings.Config, error) {
	config, err := settings.ReadConfig(raw)
	if err != nil {
		return settings.Config{}, unusable(err)
	}
	return config, nil
}
