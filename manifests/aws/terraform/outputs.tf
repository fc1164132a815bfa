output "controller_role_arn" {
  description = "The controller's role."
  value       = aws_cloudformation_stack.croft.outputs["ControllerRoleArn"]
}

output "node_role_name" {
  description = "spec.role of EC2NodeClasses."
  value       = aws_cloudformation_stack.croft.outputs["NodeRoleName"]
}

output "node_instance_profile_name" {
  description = "spec.instanceProfile of EC2NodeClasses, instead of spec.role."
  value       = aws_cloudformation_stack.croft.outputs["NodeInstanceProfileName"]
}

output "interruption_queue_name" {
  description = "controller.settings.interruptionQueue of the chart."
  value       = aws_cloudformation_stack.croft.outputs["InterruptionQueueName"]
}
