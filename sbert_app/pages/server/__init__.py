"""What stands between the network and the Gradio app: hosts, origins, logins, security headers."""
