package live

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/teamsync/edge-workers/pkg/canonical"
	"github.com/teamsync/edge-workers/pkg/settings"
)

// saltBytes is the length of a password's salt before it is written in hex.
const saltBytes = 16

// Accounts lists the service accounts whose credentials were put.
func (d *Desk) Accounts(ctx context.Context, by By) ([]settings.Account, error) {
	of, err := d.releaseOf(ctx, by.Tenant, accountFeature)
	if err != nil {
		return nil, err
	}
	return d.accounts(ctx, of, by)
}

func (d *Desk) accounts(ctx context.Context, of release, by By) ([]settings.Account, error) {
	result, err := d.read(ctx, of, by, "service_accounts.list")
	if err != nil {
		return nil, err
	}
	list, err := settings.ReadAccounts(result)
	if err != nil {
		return nil, unusable(err)
	}
	return list, nil
}

// PutCredentials sets what an operation that is bound to the account presents
// in its own calls. The password goes to the Worker and nowhere else; what is
// kept is its digest with a fresh salt, which is not kept.
func (d *Desk) PutCredentials(ctx context.Context, by By, id, username, password string) (settings.Account, error) {
	raw := make([]byte, saltBytes)
	_, err := rand.Read(raw)
	if err != nil {
		return settings.Account{}, fmt.Errorf("make a salt: %w", err)
	}
	salt := hex.EncodeToString(raw)
	command, err := parse(settings.CredentialsPut, map[string]any{
		"serviceAccountId": id, "username": username, "password": password, "salt": salt,
		"passwordDigest": canonical.SHA256([]byte(salt + "\x00" + password)),
	})
	if err != nil {
		return settings.Account{}, err
	}
	var account settings.Account
	_, err = d.changeInTurn(ctx, by, accountFeature, command, &account)
	return account, err
}

// DeleteCredentials removes an account's credentials, and with them the
// account, and tells whether there was one.
func (d *Desk) DeleteCredentials(ctx context.Context, by By, id string) (bool, error) {
	command, err := parse(settings.CredentialsDelete, map[string]any{"serviceAccountId": id})
	if err != nil {
		return false, err
	}
	done, err := d.changeInTurn(ctx, by, accountFeature, command, nil)
	return done.Deleted, err
}
