# The stack of ../croft.yaml, which is the only description of what Croft needs in AWS. One module for each cluster.

terraform {
  required_version = ">= 1.3"
  required_providers {
    aws = {
      source  = "hashicorp/aws"
      version = ">= 5.0"
    }
  }
}

resource "aws_cloudformation_stack" "croft" {
  name          = coalesce(var.stack_name, "croft-${var.cluster_name}")
  template_body = file("${path.module}/../croft.yaml")
  capabilities  = ["CAPABILITY_NAMED_IAM"]

  parameters = {
    ClusterName            = var.cluster_name
    ClusterUid             = var.cluster_uid
    Namespace              = var.namespace
    NodeRoleName           = var.node_role_name
    AccessEntry            = tostring(var.access_entry)
    OidcProviderArn        = var.oidc_provider_arn
    ImageParameterArns     = join(",", var.image_parameter_arns)
    RecordArchive          = var.record_archive
    PermissionsBoundaryArn = var.permissions_boundary_arn
  }
}

# The tag by which EC2NodeClasses find subnets and security groups.
resource "aws_ec2_tag" "discovery" {
  for_each    = toset(var.discoverable_resource_ids)
  resource_id = each.value
  key         = "croft.dev/discovery"
  value       = var.discovery_value
}
