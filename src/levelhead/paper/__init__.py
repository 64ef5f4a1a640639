"""The reproduction of Kim and Kim 2020 as data: its grids, its published numbers, and what we measured beside them."""
