package live

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// Secrets lists the Worker's secrets by name, without their values.
func (d *Desk) Secrets(ctx context.Context, by By) ([]settings.Secret, error) {
	of, err := d.releaseOf(ctx, by.Tenant, secretFeature)
	if err != nil {
		return nil, err
	}
	result, err := d.read(ctx, of, by, "secrets.list")
	if err != nil {
		return nil, err
	}
	list, err := settings.ReadSecrets(result)
	if err != nil {
		return nil, unusable(err)
	}
	return list, nil
}

// PutSecret sets a secret. Its value goes to the Worker and nowhere else.
func (d *Desk) PutSecret(ctx context.Context, by By, name, value string) (settings.Secret, error) {
	command, err := parse(settings.SecretsPut, map[string]any{
		"name": name, "value": value, "valueDigest": canonical.SHA256([]byte(value)),
	})
	if err != nil {
		return settings.Secret{}, err
	}
	var secret settings.Secret
	_, err = d.changeInTurn(ctx, by, secretFeature, command, &secret)
	return secret, err
}

// DeleteSecret removes a secret and tells whether there was one.
func (d *Desk) DeleteSecret(ctx context.Context, by By, name string) (bool, error) {
	command, err := parse(settings.SecretsDelete, map[string]any{"name": name})
	if err != nil {
		return false, err
	}
	done, err := d.changeInTurn(ctx, by, secretFeature, command, nil)
	return done.Deleted, err
}

// changeInTurn is a change that no deployment may overtake. It reads the state
// that it left into current.
func (d *Desk) changeInTurn(ctx context.Context, by By, needs feature, command settings.Command, current any) (changed, error) {
	of, end, err := d.turn(ctx, by, needs)
	if err != nil {
		return changed{}, err
	}
	defer end()
	result, err := d.change(ctx, by, of, command)
	if err != nil {
		return changed{}, err
	}
	done := readChange(result)
	if current == nil {
		return done, nil
	}
	err = json.Unmarshal(done.Current, current)
	if err != nil {
		return changed{}, fmt.Errorf("read the changed state: %w", err)
	}
	return done, nil
}

// turn takes the department's turn and finds the release that is live in it.
func (d *Desk) turn(ctx context.Context, by By, needs feature) (release, func(), error) {
	_, err := d.releaseOf(ctx, by.Tenant, needs) // before anybody else is kept waiting
	if err != nil {
		return release{}, nil, err
	}
	end, err := d.turns().Take(ctx, by.Tenant)
	if err != nil {
		return release{}, nil, err
	}
	of, err := d.releaseOf(ctx, by.Tenant, needs)
	if err != nil {
		end()
		return release{}, nil, err
	}
	return of, end, nil
}

func (d *Desk) turns() Turns { return Turns{DB: d.p.DB, Redis: d.p.Redis, Log: d.p.Log} }
