"""Additions to pyiceberg's catalogs: Java's addresses, time limits of requests, a connection to Hive for each thread.

Properties of a sink for Apache's Java catalogs work here, too:

    >>> from calving.catalogs.jdbc import sql_uri
    >>> sql_uri("jdbc:postgresql://db:5432/lake?user=etl&sslmode=require", {})
    'postgresql+psycopg2://etl:@db:5432/lake?sslmode=require'

``iceberg.catalog`` opens the catalog of a sink with these additions.
"""
