"""Other people's trainers and estimators, wearing ours."""
