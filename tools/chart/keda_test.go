package chart

import (
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The kinds of KEDA, as far as the chart uses them, after the types of KEDA
// 2.21. KEDA's own module would double the time that these tests take to build.

type scaledObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		ScaleTargetRef struct {
			Name string `json:"name"`
			Kind string `json:"kind,omitempty"`
		} `json:"scaleTargetRef"`
		MinReplicaCount *int32 `json:"minReplicaCount,omitempty"`
		MaxReplicaCount *int32 `json:"maxReplicaCount,omitempty"`
		Advanced        struct {
			HorizontalPodAutoscalerConfig struct {
				Behavior autoscalingv2.HorizontalPodAutoscalerBehavior `json:"behavior"`
			} `json:"horizontalPodAutoscalerConfig"`
		} `json:"advanced"`
		Triggers []kedaTrigger `json:"triggers"`
	} `json:"spec"`
}

type kedaTrigger struct {
	Type              string            `json:"type"`
	Metadata          map[string]string `json:"metadata"`
	AuthenticationRef *struct {
		Name string `json:"name"`
		Kind string `json:"kind,omitempty"`
	} `json:"authenticationRef,omitempty"`
}

type triggerAuthentication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              struct {
		PodIdentity struct {
			Provider string `json:"provider"`
		} `json:"podIdentity"`
	} `json:"spec"`
}

// triggerMetadata are the names that the two scalers of KEDA 2.21 read.
var triggerMetadata = map[string][]string{
	"gcp-pubsub":    {"subscriptionName", "topicName", "mode", "value", "activationValue", "aggregation", "timeHorizon", "valueIfNull"},
	"aws-sqs-queue": {"queueURL", "queueLength", "activationQueueLength", "awsRegion", "awsEndpoint", "scaleOnInFlight", "scaleOnDelayed"},
}

func (o *scaledObject) DeepCopyObject() runtime.Object {
	copied := *o
	o.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

func (o *triggerAuthentication) DeepCopyObject() runtime.Object {
	copied := *o
	o.DeepCopyInto(&copied.ObjectMeta)
	return &copied
}

func addKeda(scheme *runtime.Scheme) error {
	version := schema.GroupVersion{Group: "keda.sh", Version: "v1alpha1"}
	scheme.AddKnownTypeWithName(version.WithKind("ScaledObject"), &scaledObject{})
	scheme.AddKnownTypeWithName(version.WithKind("TriggerAuthentication"), &triggerAuthentication{})
	metav1.AddToGroupVersion(scheme, version)
	return nil
}
