"""What tests share: slow references that are obviously right, the table of cases, small stores."""
