package batch_test

import (
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"testing"

	"github.com/teamsync/edge-workers/transports/batch/batchtest"
)

// The job definition in the documents is the one that the tests run with.
func TestDocumentedDefinition(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/transports.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```json\n(.*?)```").FindSubmatch(text)
	if block == nil {
		t.Fatal("there is none")
	}
	var documented struct {
		Name      string `json:"jobDefinitionName"`
		Container struct {
			Command []string `json:"command"`
		} `json:"containerProperties"`
		Retry struct {
			Attempts       int              `json:"attempts"`
			EvaluateOnExit []batchtest.Rule `json:"evaluateOnExit"`
		} `json:"retryStrategy"`
	}
	if err = json.Unmarshal(block[1], &documented); err != nil {
		t.Fatal(err)
	}
	got := batchtest.Definition{Name: documented.Name, Command: documented.Container.Command, Attempts: documented.Retry.Attempts, EvaluateOnExit: documented.Retry.EvaluateOnExit}
	if want := batchtest.Deployer(documented.Name, attempts); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
