variable "cluster_name" {
  description = "Name of the cluster at EKS."
  type        = string
}

variable "cluster_uid" {
  description = "UID of the namespace kube-system: the attribute metadata[0].uid of a data source kubernetes_namespace."
  type        = string
}

variable "stack_name" {
  description = "Name of the stack; croft- and the cluster's name if null."
  type        = string
  default     = null
}

variable "namespace" {
  description = "Namespace that Croft is installed into."
  type        = string
  default     = "croft-system"
}

variable "node_role_name" {
  description = "Name of the nodes' role and of its instance profile. It is unique in the account."
  type        = string
  default     = "croft-node"
}

variable "access_entry" {
  description = "Let instances with the nodes' role join the cluster; false for authentication mode CONFIG_MAP."
  type        = bool
  default     = true
}

variable "oidc_provider_arn" {
  description = "ARN of the cluster's IAM OIDC provider, for IRSA; empty for EKS Pod Identity."
  type        = string
  default     = ""
}

variable "image_parameter_arns" {
  description = "ARNs of SSM parameters that EC2NodeClasses name in ssmParameter, but for those below /aws/service."
  type        = list(string)
  default     = []
}

variable "record_archive" {
  description = "Bucket and prefix, as BUCKET/PREFIX, of controller.settings.recordArchive; empty if it isn't set."
  type        = string
  default     = ""
}

variable "permissions_boundary_arn" {
  description = "ARN of a permissions boundary for both roles; empty for none."
  type        = string
  default     = ""
}

variable "discoverable_resource_ids" {
  description = "IDs of subnets and security groups that get the tag croft.dev/discovery. They are known before apply: write the IDs, or those of resources that exist."
  type        = list(string)
  default     = []
}

variable "discovery_value" {
  description = "Value of the tag croft.dev/discovery."
  type        = string
  default     = "croft"
}
