"""How many candidates a search by reduced vectors must fetch; close pairs."""
