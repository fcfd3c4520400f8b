"""What the APIs take and give: request fields and the JSON of answers."""
