package onprem

import (
	"context"
	"fmt"
)

// Exists reports whether the edge host has the script, in one attempt. The host
// has one namespace, whatever name the environment gives it.
func (p *Provider) Exists(ctx context.Context, _, script string) (bool, error) {
	err := checkName(script)
	if err != nil {
		return false, err
	}
	return p.api.Exists(ctx, script)
}

// Delete deletes the script with its stored data, in one attempt. One that is not
// there is no error; after an error Exists tells what became of it.
func (p *Provider) Delete(ctx context.Context, _, script string) error {
	err := checkName(script)
	if err != nil {
		return err
	}
	return p.api.Delete(ctx, script)
}

func checkName(script string) error {
	if !scriptPattern.MatchString(script) {
		return fmt.Errorf("script name %.80q is not one of ours", script)
	}
	return nil
}
