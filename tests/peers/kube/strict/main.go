// Command kube-strict reads Kubernetes manifests as an API server does: no field that is not there,
// every value allowed. It prints what is wrong and fails.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsvalidation "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyvalidation "k8s.io/kubernetes/pkg/apis/policy/validation"
)

func check(document []byte) (string, error) {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	object, kind, err := codecs.UniversalDecoder().Decode(document, nil, nil)
	if err != nil {
		return "", err
	}
	of, err := meta.Accessor(object)
	if err != nil {
		return "", err
	}
	if of.GetNamespace() == "" {
		of.SetNamespace("default")
	}
	var wrong field.ErrorList
	switch object := object.(type) {
	case *core.Pod:
		wrong = corevalidation.ValidatePodCreate(object, corevalidation.PodValidationOptions{})
	case *core.Service:
		// The API server fills it in before it looks.
		if object.Spec.ClusterIP != "" && object.Spec.ClusterIPs == nil {
			object.Spec.ClusterIPs = []string{object.Spec.ClusterIP}
		}
		wrong = corevalidation.ValidateServiceCreate(object)
	case *apps.StatefulSet:
		wrong = appsvalidation.ValidateStatefulSet(object, appsvalidation.StatefulSetValidationOptions{}, corevalidation.PodValidationOptions{})
	case *policy.PodDisruptionBudget:
		wrong = policyvalidation.ValidatePodDisruptionBudget(object, policyvalidation.PodDisruptionBudgetValidationOptions{})
	default:
		return "", fmt.Errorf("no rules for %s", kind)
	}
	return kind.Kind + "/" + of.GetName(), wrong.ToAggregate()
}

func main() {
	failed := false
	for _, path := range os.Args[1:] {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(text)))
		for {
			buffer := make([]byte, len(text)+1)
			length, err := documents.Read(buffer)
			if errors.Is(err, io.EOF) {
				break
			}
			name, err := check(buffer[:length])
			if err != nil {
				fmt.Fprintf(os.Stderr, "%s: %s: %v\n", path, name, err)
				failed = true
				continue
			}
			fmt.Printf("%s: %s is valid\n", path, name)
		}
	}
	if failed {
		os.Exit(1)
	}
}
